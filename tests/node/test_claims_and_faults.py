"""Claims survive what happens to their node: it loses power, its agent is replaced, a GPU or a neighbour is bad."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.node import Node
from testbed.orion import PLUGIN_PORT, Orion
from tests.node import hostile_image
from tests.node.claimed_gpus import CDI, RECORDS, Claims, claiming, held, until_nothing_is_left
from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, main_container, serving, training
from tests.node.shell_pods import shell_pod
from tests.node.test_hostile_pod import HOSTILE, hostile_pod, wait_for
from tests.waiting import eventually

pytestmark = pytest.mark.node

MIB = 1 << 20
MANY = 16
""" All be slots of the node. """


def create(tenants: Tenants, claims: Claims, *names: str) -> None:
    for name in names:
        claim, pod = claiming(training(name, memory=MIB), "be")
        claims.create(claim)
        tenants.create(pod)


def restarts(tenants: Tenants, name: str) -> int:
    (status,) = tenants.pods()[name].status.container_statuses
    return int(status.restart_count)


def test_all_pods_run_again_after_their_node_lost_power(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, orion: Orion
) -> None:
    names = [f"train-{number}" for number in range(MANY)]
    create(tenants, claims, *names)
    for name in names:
        tenants.begun(name)
    slots = held(gpus)
    orion.end_on(node, patience=0)  # as without power; Orion's processes are children of this process
    node.reboot()
    orion.begin_mps_daemon(node)
    orion.begin_agent(node)
    orion.begin_driver(node)
    eventually(lambda: all(restarts(tenants, name) for name in names), what="the containers run again")
    for name in names:
        tenants.begun(name)
    assert held(gpus).keys() == slots.keys()
    eventually(lambda: sum(len(gpus.slot(device).clients) for device in slots) == MANY)
    assert {pod.metadata.name: pod.status.phase for pod in tenants.pods().values()} == dict.fromkeys(names, "Running")
    tenants.delete(*names)
    until_nothing_is_left(gpus, node)


def test_the_next_agent_knows_the_claims(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, orion: Orion
) -> None:
    create(tenants, claims, "before")
    tenants.begun("before")
    slots = held(gpus)
    orion.end(node, "agent", 0)
    create(tenants, claims, "without")
    tenants.begun("without")  # onNoAgent is start
    orion.begin_agent(node)
    eventually(lambda: len(held(gpus)) == 2, what=f"both claims have slots: {held(gpus)}")
    assert slots.items() <= held(gpus).items()
    for device in held(gpus):
        eventually(lambda device=device: len(gpus.slot(device).clients) == 1)  # type: ignore[misc]
    tenants.delete("before", "without")
    until_nothing_is_left(gpus, node)


def test_a_sick_gpu_shows_in_the_slice_and_in_the_status_of_its_pods(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, lose: Callable[[str, str], None]
) -> None:
    create(tenants, claims, "train")
    tenants.begun("train")
    ((device, _),) = held(gpus).items()
    gpu = device.partition("::")[0]
    lose("lose", gpu)

    def taints() -> list[str]:
        (found,) = (each for each in claims.slices()[0]["spec"]["devices"] if each["name"] == gpu.lower())
        return [each["key"] for each in found.get("taints") or ()]

    def health() -> set[str]:
        statuses: list[Manifest] = tenants.api.sanitize_for_serialization(
            tenants.pods()["train"].status.container_statuses
        )
        return {
            resource["health"]
            for status in statuses
            for each in status.get("allocatedResourcesStatus") or ()
            for resource in each["resources"]
        }

    eventually(lambda: taints() == ["orion.gpu/unhealthy"], what="the taint")
    eventually(lambda: health() == {"Unhealthy"}, what=f"the pod's status: {health()}")
    create(tenants, claims, "other")
    tenants.begun("other")
    assert next(device for device, pods in held(gpus).items() if pods == ("other",)).partition("::")[0] != gpu
    lose("restore", gpu)
    eventually(lambda: taints() == [], what="the taint is gone")
    tenants.delete("train", "other")
    until_nothing_is_left(gpus, node)


def test_a_container_that_runs_under_a_claim_without_its_slot_is_named(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node
) -> None:
    """The claim's CDI file gives nothing, as with a container runtime that ignores CDI; another pod's file is whole."""
    folder = gpus.path(CDI)
    claim, pod = claiming(shell_pod("lacking", "sleep 3600", {"resources": {"limits": {}}}), "be")
    claims.create(claim)
    tenants.create(pod)
    (path,) = eventually(lambda: list(folder.glob("*.json")), what="the CDI file, before the container exists")
    specification = json.loads(path.read_text())
    for device in specification["devices"]:
        device["containerEdits"] = {"env": ["NOTHING=1"]}
    fresh = path.with_name(".fresh")
    fresh.write_text(json.dumps(specification))
    fresh.replace(path)
    claim, pod = claiming(shell_pod("having", "sleep 3600", {"resources": {"limits": {}}}), "be")
    claims.create(claim)
    tenants.create(pod)

    def named() -> set[str]:
        found = tenants.core.list_namespaced_event(tenants.namespace).items
        return {each.involved_object.name for each in found if each.reason == "ContainerWithoutSlot"}

    eventually(lambda: named() == {"lacking"}, what=f"the Event: {named()}")
    eventually(lambda: tenants.pods()["having"].status.phase == "Running")
    assert named() == {"lacking"}
    tenants.delete("lacking", "having")
    until_nothing_is_left(gpus, node)


@pytest.fixture
def neighbours(claims: Claims, tenants: Tenants) -> list[str]:
    """An hp pod and a be pod with claims, on the GPU that a further pod gets, too: the first one that fits."""
    claimed = [claiming(serving(), "hp"), claiming(training(memory=MIB), "be")]
    for claim, pod in claimed:
        claims.create(claim)
        tenants.create(pod)
    names = [pod["metadata"]["name"] for _, pod in claimed]
    for name in names:
        tenants.begun(name)
    return names


def files_of_claims(node: Node) -> str:
    """The sums of the CDI files and of the driver's records."""
    return node.run(["sh", "-c", f"sha256sum {CDI}/* {RECORDS}/*"])


def test_a_hostile_root_with_a_claim_reaches_neither_the_driver_nor_other_claims(
    neighbours: list[str], claims: Claims, tenants: Tenants, gpus: GpuNode, node: Node, orion: Orion, tmp_path: Path
) -> None:
    node.import_image(hostile_image.image().write(tmp_path / "hostile.tar"))
    claim, pod = claiming(hostile_pod(node), "be")
    main_container(pod)["args"].append(str(PLUGIN_PORT))  # the driver's metrics
    claims.create(claim)
    tenants.create(pod)
    attacking = wait_for(tenants, "attacking")
    assert (attacking["user"], attacking["preload"]) == (0, True)
    slots, files, programs = held(gpus), files_of_claims(node), orion.pids()
    assert len({device.partition("::")[0] for device in slots}) == 1, "all are on one GPU"
    assert sorted(pods for (pods,) in slots.values()) == sorted([HOSTILE, *neighbours])

    assert wait_for(tenants, "over")["reached"] == []
    wait_for(tenants, "holding")
    for name in neighbours:
        tenants.reports(name, 1)
        assert tenants.printed(name, "error") == []
    assert (held(gpus), files_of_claims(node), orion.pids()) == (slots, files, programs)

    tenants.delete(HOSTILE)  # the driver still answers
    eventually(lambda: sorted(pods for (pods,) in held(gpus).values()) == sorted(neighbours), what="its slot is free")
    tenants.delete(*neighbours)
    until_nothing_is_left(gpus, node)
