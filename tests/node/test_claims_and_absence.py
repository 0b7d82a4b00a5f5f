"""Pods with claims come and go while a program that they need is away: nobody loses a slot, and none is given twice."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from kubernetes import client

from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import Orion
from tests.node.claimed_gpus import Claims, claiming, held, until_nothing_is_left
from tests.node.gpu_tenants import GpuNode, Tenants, share, training
from tests.waiting import DEADLINE, eventually

pytestmark = pytest.mark.node

MIB = 1 << 20
SLICES_GO_SECONDS = 30.0
""" The kubelet deletes the slices of a driver so long after its last connection. """
WAITING = [f"train-{number}" for number in range(6)]
FIT = 4
""" Each asks for 0.4 of a GPU, and the node has two. """


@pytest.fixture
def away(cluster: Cluster, orion: Orion) -> Iterator[Callable[[str], Callable[[], None]]]:
    """Ends a program, and returns what begins it again: `away("kube-scheduler")`; all run at the end."""
    missing: dict[str, Callable[[], None]] = {}

    def end(name: str) -> Callable[[], None]:
        if name == "operator":
            orion.end_operator()
        else:
            cluster.control_plane.end(name)
        begins = orion.begin_operator if name == "operator" else lambda: cluster.control_plane.begin(name)
        missing[name] = begins

        def begin() -> None:
            del missing[name]
            begins()

        return begin

    yield end
    for begins in missing.values():
        begins()


def placed(tenants: Tenants) -> set[str]:
    return {name for name, pod in tenants.pods().items() if pod.spec.node_name}


def running(tenants: Tenants) -> set[str]:
    return {name for name, pod in tenants.pods().items() if pod.status.phase == "Running"}


@pytest.mark.usefixtures("claiming_webhook")
@pytest.mark.parametrize("program", ["kube-scheduler", "kube-controller-manager", "operator"])
def test_pods_that_come_while_a_program_is_away_run_when_it_is_back(
    program: str, away: Callable[[str], Callable[[], None]], tenants: Tenants, gpus: GpuNode, node: Node
) -> None:
    pods = [training(name, memory=MIB) for name in WAITING]
    tenants.create(
        *(share(pod, compute={"request": 0.4}) for pod in pods)
    )  # long before the pods: the webhook knows them
    first = training("before", memory=MIB)
    tenants.create(share(first, compute={"request": 0.2}), first)
    tenants.begun("before")
    before = held(gpus)
    begin = away(program)
    tenants.create(*pods)
    tenants.reports("before", 1)
    assert placed(tenants) == {"before"}, f"pods need {program}"
    begin()
    eventually(lambda: len(running(tenants)) == 1 + FIT, what="the GPUs are full", seconds=3 * DEADLINE)
    eventually(lambda: len(held(gpus)) == 1 + FIT, what="slots are held")
    slots = held(gpus)
    assert before.items() <= slots.items()
    assert Counter(pods for pods in slots.values()).most_common(1)[0][1] == 1, "each pod has one slot"
    on = Counter(device.partition("::")[0] for device, pods in slots.items() if pods != ("before",))
    assert set(on.values()) == {2}, "no GPU has more than its time"
    ended = sorted(running(tenants) - {"before"})
    tenants.delete(*ended)
    for name in set(WAITING) - set(ended):
        tenants.begun(name)
    tenants.delete("before", *(set(WAITING) - set(ended)))
    until_nothing_is_left(gpus, node)


def test_a_driver_that_is_away_until_its_slices_are_gone_loses_no_slot(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node, orion: Orion, api: client.ApiClient
) -> None:
    def create(name: str) -> None:
        claim, pod = claiming(training(name, memory=MIB), "be", time="400")
        claims.create(claim)
        tenants.create(pod)

    for name in ("stays", "ends"):
        create(name)
        tenants.begun(name)
    slots = held(gpus)
    orion.end(node, "driver", 0)
    create("early")  # the slices are still there
    eventually(lambda: "early" in placed(tenants), what="the scheduler gives a GPU")
    tenants.core.delete_namespaced_pod("ends", tenants.namespace)
    eventually(lambda: not claims.slices(), what="the kubelet deletes the slices", seconds=SLICES_GO_SECONDS + DEADLINE)
    for name in ("late", "given-up"):
        create(name)
    eventually(lambda: unschedulable(tenants) == {"late", "given-up"}, what="no GPU is offered")
    tenants.delete("given-up")
    tenants.reports("stays", 1)
    assert tenants.pods()["ends"].metadata.deletion_timestamp, "the kubelet waits for the driver"
    assert held(gpus) == slots, "nothing is given back before its pod has ended"
    orion.begin_driver(node)
    claims.until_offered()
    eventually(lambda: "ends" not in tenants.pods(), what="the pod ends")
    for name in ("late", "early"):
        eventually(lambda name=name: name in running(tenants), what=f"{name} runs", seconds=3 * DEADLINE)  # type: ignore[misc]
        tenants.begun(name)
    assert {device for device, pods in slots.items() if pods == ("stays",)} <= held(gpus).keys()
    assert sorted(pods for (pods,) in held(gpus).values()) == ["early", "late", "stays"]
    tenants.reports("stays", 1)
    tenants.delete("stays", "early", "late")
    until_nothing_is_left(gpus, node)


def unschedulable(tenants: Tenants) -> set[str]:
    """The pods that the scheduler has tried and could not place."""
    return {
        name
        for name, pod in tenants.pods().items()
        if [
            each
            for each in pod.status.conditions or ()
            if (each.type, each.reason) == ("PodScheduled", "Unschedulable")
        ]
    }
