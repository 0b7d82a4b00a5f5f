"""What the operator reports of the memory that shares reserve and borrow, and of slots that are parked."""

import json
from typing import Any

import pytest

from tests.operator.fake_cluster import FakeCluster, Reconciler, state_of
from tests.operator.share_objects import (
    GPU_NAME,
    PARKS,
    UUID,
    condition,
    device,
    events,
    grant_of,
    parked,
    pod,
    reconciled,
    row,
    share,
    slot,
    status,
    used,
)


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        ({"limit": "40Gi"}, ""),
        ({"request": "40Gi", "limit": "40GiB"}, ""),
        (
            {"request": "16Gi", "limit": "40Gi"},
            "; spec.memory reserves 16Gi of a GPU for each slot and allows 40Gi: the 24Gi between them are not sure, "
            "as other pods may get them",
        ),
        (
            {"request": "16Gi"},
            "; spec.memory reserves 16Gi of a GPU for each slot and sets no limit: what a slot allocates beyond that "
            "is not sure, as other pods may get it",
        ),
    ],
)
def test_a_share_says_which_memory_it_allows_and_does_not_reserve(memory: dict[str, str], says: str) -> None:
    cluster = reconciled(share(memory=memory), pod("p"), device(heldSlots=[slot("p")]))
    assert condition(cluster, "Ready") == ("True", "Granted", f"the pod has the grant of this share{says}")


def test_a_share_from_before_oversubscribe_keeps_its_grants_and_says_what_to_write() -> None:
    memory = {"request": "1Gi", "limit": "2Gi"}
    cluster = reconciled(share(memory=memory), pod("p"), device(heldSlots=[slot("p")]))
    assert json.loads(grant_of(cluster))["containers"]["main"] == {
        "slots": 1, "memoryRequestBytes": 2**30, "memoryLimitBytes": 2**31,
    }  # fmt: skip
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")
    status, reason, message = condition(cluster, "Degraded")
    assert (status, reason) == ("True", "MemoryNotGivenBack")
    assert "set spec.memory.oversubscribe to park or unified" in message


def test_the_grant_of_a_pod_with_a_liveness_probe_does_not_park_it() -> None:
    watched, free = pod("p"), pod("q")
    watched["spec"]["containers"][0]["livenessProbe"] = {"tcpSocket": {"port": 80}}
    cluster = reconciled(share(memory=PARKS), watched, free)
    parks = {name: json.loads(grant_of(cluster, name))["containers"]["main"].get("memoryParks") for name in ("p", "q")}
    assert parks == {"p": None, "q": True}


def test_parked_slots_are_counted_listed_first_and_a_condition() -> None:
    pods = [pod(name) for name in ("a", "b", "c")]
    rows = [used("a", 0, charged=0.1), parked("b", 1, "2026-01-02T03:04:06Z"), parked("c", 2)]
    cluster = reconciled(share(memory=PARKS), *pods, device(heldSlots=rows))
    assert (status(cluster)["pods"]["parked"], status(cluster)["pods"]["running"]) == (2, 3)
    first, second, third = status(cluster)["slots"]
    assert first == {
        "pod": {"namespace": "n", "name": "b"}, "node": "node", "gpu": UUID.format(0), "slot": "be-1",
        "parked": {"since": "2026-01-02T03:04:06Z", "memory": "6Gi"},
    }  # fmt: skip
    assert (second["slot"], third["slot"]) == ("be-2", "be-0")
    holds, reason, message = condition(cluster, "Parked")
    assert (holds, reason) == ("True", "SlotsParked")
    assert message.startswith(
        "a slot of pod c (and 1 more) is parked: 6Gi of the GPU's memory are in the pod's host memory"
    )
    assert not [each for each in events(cluster) if "Parked" in each[1]]  # the agents post them


def test_the_condition_parked_is_only_where_a_slot_may_be_parked() -> None:
    def kinds(cluster: FakeCluster) -> set[str]:
        return {each["type"] for each in status(cluster)["conditions"]}

    assert "Parked" not in kinds(reconciled(share(), pod("p"), device(heldSlots=[slot("p")])))
    cluster = reconciled(share(memory=PARKS), pod("p"), device(heldSlots=[slot("p")]))
    assert condition(cluster, "Parked")[:2] == ("False", "NoneParked")
    cluster.put(share())
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Parked")[:2] == ("False", "NoneParked")  # it was there, so it is kept true


def test_a_slot_that_could_not_leave_degrades_its_share() -> None:
    rows = [slot("p") | {"parkRefused": "it uses managed memory"}]
    cluster = reconciled(share(memory=PARKS), pod("p"), device(heldSlots=rows))
    state, reason, message = condition(cluster, "Degraded")
    assert (state, reason) == ("True", "ParkRefused")
    assert message == f"pod p could not leave the memory of {UUID.format(0).lower()}: it uses managed memory"


def test_a_slot_for_which_host_memory_is_short_degrades_its_share() -> None:
    rows = [slot("p") | {"parkRefused": "it is short", "parkRefusedReason": "HostMemoryShort"}]
    report = device(heldSlots=rows, clients=[row("p", message="it is short")])
    cluster = reconciled(share(memory=PARKS), pod("p"), report)
    assert condition(cluster, "Degraded")[:2] == ("True", "HostMemoryShort")
    worse = device(heldSlots=rows, clients=[row("p", message="it is lost")])
    assert condition(reconciled(share(memory=PARKS), pod("p"), worse), "Degraded")[1] == "ClientTroubled"
    assert ("s", "DegradedHostMemoryShort") in events(cluster)


def test_a_share_whose_pods_reserve_more_memory_than_their_gpu_has_is_not_ready() -> None:
    """Two pods with 60Gi each got slots of one GPU with 80Gi; the program of the second has failed."""
    memory = {"total": "80Gi", "reserved": "120Gi"}
    two = device(0, heldSlots=[slot("p1"), slot("p2", "be-1", clients=0)], memory=memory)
    alone = device(1, heldSlots=[slot("p3")], memory={"total": "80Gi", "reserved": "60Gi"})
    cluster = reconciled(share(memory={"limit": "60Gi"}), pod("p1"), pod("p2"), pod("p3"), two, alone)
    assert condition(cluster, "Ready") == (
        "False",
        "MemoryOverReserved",
        f"pod p2 (and 1 more) reserves 60Gi on {GPU_NAME} of node node, but the GPU's pods reserve 120Gi of 80Gi, "
        "so 20Gi are left for it and its allocations may fail; lower spec.memory to that, or delete the pod so that it "
        "can start on another GPU",
    )
    assert ("s", "ReadyMemoryOverReserved") in events(cluster)
    cluster.put(device(0, heldSlots=[slot("p1")], memory=memory | {"reserved": "60Gi"}))
    cluster.put(device(2, heldSlots=[slot("p2")], memory=memory | {"reserved": "60Gi"}))
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")


@pytest.mark.parametrize("memory", [None, {"total": "80Gi"}, {"total": "0", "reserved": "1Gi"}])
def test_a_share_is_ready_if_the_memory_of_its_gpu_is_not_known(memory: Any) -> None:
    cluster = reconciled(share(memory={"limit": "60Gi"}), pod("p"), device(heldSlots=[slot("p")], memory=memory))
    assert condition(cluster, "Ready")[:2] == ("True", "Granted")


def test_a_share_that_reserves_no_memory_is_ready_on_an_over_reserved_gpu() -> None:
    over = device(heldSlots=[slot("p")], memory={"total": "80Gi", "reserved": "120Gi"})
    assert condition(reconciled(share(), pod("p"), over), "Ready")[:2] == ("True", "Granted")
