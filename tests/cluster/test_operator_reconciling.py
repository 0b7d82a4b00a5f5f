"""The operator at a real API server, with exactly the chart's rules: from shares to grants and status."""

import functools
import re
from collections.abc import Iterator

import pytest
from kubernetes import client

from orion.crds.device import device_name
from tests.cluster.conftest import FakeNode, Kubectl
from tests.cluster.operator_process import OperatorProcess, World
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

GI = 2**30


@pytest.fixture
def operator(own_operator: OperatorProcess) -> OperatorProcess:
    return own_operator


@pytest.fixture
def gpu(world: World) -> Iterator[str]:
    uuid = f"GPU-{world.namespace.removeprefix('test-')[:8]}-0000-4000-8000-000000000000"
    yield uuid
    world.delete_device(uuid)


def test_a_share_and_its_changes_reach_its_pods_without_a_restart(world: World, operator: OperatorProcess) -> None:
    for number in range(5):
        world.pod(f"train-{number}", "training")
    world.share("training", memory={"limit": "8Gi"})
    eventually(lambda: world.memory_limits() == {8 * GI})
    eventually(lambda: world.condition("training", "Ready") == ("True", "Granted"))
    status = world.share_status("training")
    assert status["pods"] == {"governed": 5, "granted": 5, "running": 0, "parked": 0, "unannotated": 0}
    assert world.condition("training", "HookInjected") == ("Unknown", "NoClients")

    world.change_share("training", memory={"limit": "4Gi"})
    eventually(lambda: world.memory_limits() == {4 * GI})
    eventually(lambda: world.share_status("training")["observedGeneration"] == 2)
    eventually(lambda: world.condition("training", "Ready") == ("True", "Granted"))
    assert world.grant("train-0")["shareGeneration"] == 2


def test_at_rest_nothing_is_written(world: World, operator: OperatorProcess) -> None:
    world.share("training", memory={"limit": "8Gi"})
    for number in range(5):
        world.pod(f"train-{number}", "training")
    eventually(lambda: world.share_status("training").get("pods", {}).get("granted") == 5 and operator.at_rest())
    assert operator.writes_in_namespaces() > 0
    assert operator.end() == 0
    operator.start().wait_until_ready()
    eventually(operator.at_rest)
    assert operator.writes_in_namespaces() == 0  # the new process counts from zero, and found nothing to write


def test_pods_of_a_deleted_share_keep_their_grant_and_report_it(world: World, operator: OperatorProcess) -> None:
    world.share("training", memory={"limit": "8Gi"})
    world.pod("train", "training", pin="training")
    eventually(lambda: world.grant("train").get("share") == "training")
    world.delete_share("training")
    eventually(lambda: world.complaints("train") == {"ShareDeleted"})
    eventually(lambda: world.received()[0]["train"].grant == "")  # the agent keeps the grant that it has
    assert [(who, reason) for who, reason, _ in world.events()] == [("train", "ShareDeleted")]
    world.share("training", memory={"limit": "2Gi"})
    eventually(lambda: world.memory_limits() == {2 * GI})


def test_a_named_share_wins_over_selectors_and_two_matching_selectors_are_a_conflict(
    world: World, operator: OperatorProcess
) -> None:
    world.share("one", selector={"matchLabels": {"app": "x"}}, memory={"limit": "1Gi"})
    world.share("two", selector={"matchLabels": {"app": "x"}}, memory={"limit": "2Gi"})
    world.pod("named", "x", share="two")
    world.pod("torn", "x")
    eventually(lambda: world.grant("named").get("share") == "two")
    eventually(lambda: world.complaints("torn") == {"SelectorsOverlap"})
    for share in ("one", "two"):
        eventually(functools.partial(_overlaps, world, share))
        ready = next(each for each in world.share_status(share)["conditions"] if each["type"] == "Ready")
        assert "pod torn" in ready["message"]
        assert "one and two" in ready["message"]
    world.change_share("one", selector={"matchLabels": {"app": "y"}})
    eventually(lambda: world.grant("torn").get("share") == "two")
    eventually(lambda: world.condition("one", "Ready") == ("True", "NoPods"))


def test_pods_that_lack_the_annotation_are_counted_and_named(world: World, operator: OperatorProcess) -> None:
    world.share("training")
    world.pod("left-out", "training", priority=None)
    operator.end()
    operator.start().wait_until_ready()  # such pods are not watched, but counted at the start and every ten minutes
    eventually(lambda: world.share_status("training").get("pods", {}).get("unannotatedNames") == ["left-out"])
    assert world.share_status("training")["pods"]["governed"] == 0
    assert world.grant("left-out") == {}
    eventually(lambda: ("training", "PodsWithoutAnnotation") in [event[:2] for event in world.events()])


def test_statuses_of_agents_become_rows_conditions_and_labels(
    world: World, operator: OperatorProcess, fake_node: FakeNode, api: client.ApiClient, gpu: str
) -> None:
    node = fake_node("a", {"orion.gpu/hp": "1", "orion.gpu/be": "4"})
    world.share("chat", priority="hp", maxSlowdown=1.3)
    world.pod("chat", "chat", node, priority="hp")
    world.run("chat")
    slot = {"name": "hp-0", "priority": "hp", "pod": world.reference("chat"), "share": "chat", "generation": 1}
    usage = {"due": 0.5, "charged": 0.5, "measured": 0.5, "waited": 0, "debt": "200ms"}
    row = {"slot": "hp-0", "priority": "hp", "pod": world.reference("chat"), "processId": 7, "command": "python"}
    world.fake_agent_reports(
        gpu,
        node=node,
        mode="mps",
        heldSlots=[{**slot, "clients": 1, "usage": usage}],
        clients=[{**row, "busyRatio": 0.5}],
    )
    eventually(lambda: world.condition("chat", "HookInjected") == ("True", "Joined"))
    status = world.share_status("chat")
    assert (status["gpus"], status["clientCounts"]["total"]) == (1, 1)
    place = {"node": node, "gpu": gpu}
    assert status["clients"] == [{**row, **place, "busyRatio": 0.5, "state": ""}]
    assert status["slots"] == [{"slot": "hp-0", "pod": slot["pod"], **place, "usage": usage}]

    labels = eventually(lambda: _labels(api, node))
    assert labels == {"orion.gpu/gpus": "1", "orion.gpu/gpu-model": "NVIDIA-H200", "orion.gpu/mode": "mps"}
    world.change_device(gpu, cordon=True)
    world.fake_agent_reports(gpu, mode="timeslice")
    expected = {"orion.gpu/gpus": "0", "orion.gpu/gpu-model": "NVIDIA-H200", "orion.gpu/mode": "timeslice"}
    eventually(lambda: _labels(api, node) == expected)
    eventually(lambda: world.condition("chat", "NotEnforced") == ("True", "ModeTimeslice"))

    policy = {"name": "gate", "share": "elsewhere/other", "conflicting": [f"{world.namespace}/chat"]}
    world.fake_agent_reports(gpu, policy=policy)
    eventually(lambda: world.condition("chat", "PolicyConflict") == ("True", "OtherShare"))


def test_a_share_on_an_over_reserved_gpu_is_not_ready_and_kubectl_shows_the_memory(
    world: World, operator: OperatorProcess, fake_node: FakeNode, gpu: str, kubectl: Kubectl
) -> None:
    node = fake_node("a", {"orion.gpu/be": "4"})
    world.share("train", memory={"limit": "60Gi"})
    world.pod("train", "train", node)
    eventually(lambda: world.condition("train", "Ready") == ("True", "Granted"))
    place = {"name": "be-0", "priority": "be", "pod": world.reference("train")}
    held = [{**place, "share": "train", "generation": 1}]
    memory = {"total": "80Gi", "used": "75Gi", "reserved": "120Gi"}
    world.fake_agent_reports(gpu, node=node, mode="timeslice", heldSlots=held, memory=memory)
    eventually(lambda: world.condition("train", "Ready") == ("False", "MemoryOverReserved"))
    shown = kubectl("get", "gpus", device_name(gpu), "-o", "wide").splitlines()
    heading, amounts = (re.split("  +", line) for line in shown)
    assert [amounts[heading.index(name)] for name in ("MEMORYUSED", "MEMORY", "RESERVED")] == ["75Gi", "80Gi", "120Gi"]
    world.fake_agent_reports(gpu, memory=memory | {"reserved": "60Gi"})
    eventually(lambda: world.condition("train", "Ready") == ("True", "Granted"))


def test_a_pod_without_the_hook_is_reported_and_evicted_if_its_share_fails_closed(
    world: World, operator: OperatorProcess, fake_node: FakeNode, gpu: str
) -> None:
    node = fake_node("a", {"orion.gpu/be": "4"})
    world.share("strict", failClosed=True)
    world.share("mild")
    for name in ("strict", "mild"):
        world.pod(name, name, node)
        world.run(name)
    unmanaged = [{"processId": 9, "command": "miner", "pod": world.reference(name)} for name in ("strict", "mild")]
    world.fake_agent_reports(gpu, node=node, unmanaged=unmanaged, unmanagedProcessCount=2)
    eventually(lambda: world.read_pod("strict").metadata.deletion_timestamp)
    assert ("strict", "HookMissing") in [event[:2] for event in world.events()]
    eventually(lambda: world.condition("mild", "HookInjected") == ("False", "Unmanaged"))
    assert world.read_pod("mild").metadata.deletion_timestamp is None
    notes = [note for who, reason, note in world.events() if (who, reason) == ("mild", "HookInjectedUnmanaged")]
    assert len(notes) == 1
    assert "process 9 (miner) of pod mild" in notes[0]


def test_a_pod_that_keeps_room_of_others_is_evicted_if_its_share_says_so(
    world: World, operator: OperatorProcess, fake_node: FakeNode, gpu: str
) -> None:
    node = fake_node("a", {"orion.gpu/be": "4"})
    parks = {"limit": "8Gi", "oversubscribe": "park"}
    world.share("goes", memory=parks | {"evictUnparked": True})
    world.share("stays", memory=parks)
    held = []
    for number, name in enumerate(("goes", "stays")):
        world.pod(name, name, node)
        world.run(name)
        row = {"name": f"be-{number}", "priority": "be", "pod": world.reference(name), "share": name, "generation": 1}
        held.append(row | {"clients": 1, "parkRefused": "it is busy", "parkRefusedReason": "ParkRefused"})
    world.fake_agent_reports(gpu, node=node, heldSlots=held)
    eventually(lambda: world.condition("goes", "Degraded") == ("True", "ParkRefused"))
    assert world.read_pod("goes").metadata.deletion_timestamp is None, "it may leave when it is asked again"
    world.fake_agent_reports(
        gpu, node=node, heldSlots=[row | {"keepsRoomTime": "2026-01-02T03:04:05Z"} for row in held]
    )
    eventually(lambda: world.read_pod("goes").metadata.deletion_timestamp)
    assert ("goes", "KeepsRoom") in [event[:2] for event in world.events()]
    eventually(lambda: world.condition("stays", "Degraded") == ("True", "ParkRefused"))
    assert world.read_pod("stays").metadata.deletion_timestamp is None


def test_kubectl_shows_what_people_want_to_know(world: World, operator: OperatorProcess, kubectl: Kubectl) -> None:
    world.share("training", memory={"limit": "8Gi"})
    world.pod("train", "training")
    eventually(lambda: world.condition("training", "Ready") == ("True", "Granted"))
    head, row = kubectl("get", "gpushares", "-n", world.namespace).splitlines()
    assert head.split()[:7] == ["NAME", "PRIORITY", "MEMORY", "PODS", "CLIENTS", "READY", "REASON"]
    assert row.split()[:7] == ["training", "be", "8Gi", "1", "0", "True", "Granted"]


def _overlaps(world: World, share: str) -> bool:
    return world.condition(share, "Ready") == ("False", "SelectorsOverlap")


def _labels(api: client.ApiClient, node: str) -> dict[str, str]:
    labels = client.CoreV1Api(api).read_node(node).metadata.labels
    return {key: value for key, value in (labels or {}).items() if key.startswith("orion.gpu/")}
