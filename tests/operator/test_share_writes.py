"""When the operator writes, and when it does not: changes, thresholds and the times between two writes."""

import pytest

from orion.operator.reconciler.decisions import decide
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.writes import PatchShare, PostEvent, RequeueAfter
from tests.operator.fake_cluster import NOW, Body, FakeCluster, Reconciler, state_of, take
from tests.operator.share_objects import (
    NODE,
    PARKS,
    POD,
    SHARE,
    UUID,
    device,
    grant_of,
    parked,
    pod,
    reconciled,
    row,
    share,
    slot,
    status,
    unmanaged,
    used,
    writes,
)


def test_a_grant_costs_no_write() -> None:
    cluster = FakeCluster([share(memory={"limit": "1Gi"}), pod("p")])
    assert writes(cluster, POD) == []
    assert '"memoryLimitBytes":1073741824' in grant_of(cluster)


def test_a_pod_that_is_being_deleted_gets_no_writes() -> None:
    assert writes(FakeCluster([share(), pod("p", deletionTimestamp="2026-01-01T00:00:00Z")]), POD) == []


def test_slots_that_take_turns_do_not_cause_a_write_each() -> None:
    cluster = reconciled(share(memory=PARKS), pod("p"), device(heldSlots=[slot("p")]))
    state = state_of(cluster)
    record = state.share(Named("n", "s"))
    assert record is not None
    record.written = 100.0
    take(state, cluster.put(device(heldSlots=[parked("p", 0)])))
    [again] = decide(state, SHARE, NOW, 100.1)
    assert isinstance(again, RequeueAfter)
    assert again.seconds == pytest.approx(4.9)
    assert [type(write) for write in decide(state, SHARE, NOW, 105.1)] == [PatchShare]


def test_figures_are_written_once_in_thirty_seconds_and_only_past_a_threshold() -> None:
    def with_ratio(ratio: float) -> Body:
        return device(heldSlots=[slot("p")], clients=[row("p", gatedRatio=ratio)])

    cluster = FakeCluster([NODE, share(), pod("p"), with_ratio(0.5)])
    reconciler = Reconciler(cluster, state_of(cluster))
    reconciler.run()
    state = reconciler.state
    record = state.share(Named("n", "s"))
    assert record is not None
    record.written = 100.0

    take(state, cluster.put(with_ratio(0.54)))
    assert decide(state, SHARE, NOW, 1_000.0) == []
    take(state, cluster.put(with_ratio(0.56)))
    assert decide(state, SHARE, NOW, 110.0) == [RequeueAfter(20.0)]
    [write] = decide(state, SHARE, NOW, 130.0)
    assert isinstance(write, PatchShare)
    assert list(write.patch["status"]) == ["clients"]


def test_slots_show_their_gpu_time_and_the_worst_served_is_first() -> None:
    pods = [pod(name) for name in ("a", "b", "c")]
    rows = [used("a", 0), used("b", 1, charged=0.1, debt="500ms"), slot("c", "be-2")]
    worst, fine = status(reconciled(share(), *pods, device(heldSlots=rows)))["slots"]
    assert worst == {
        "pod": {"namespace": "n", "name": "b"}, "node": "node", "gpu": UUID.format(0), "slot": "be-1",
        "computeRequest": 0.4, "computeLimit": 0.5,
        "usage": {"due": 0.4, "charged": 0.1, "measured": 0.1, "waited": 0.6, "debt": "500ms"},
    }  # fmt: skip
    assert fine["slot"] == "be-0"


@pytest.mark.parametrize(("due", "writes_it"), [(0.4, False), (0.44, False), (0.46, True)])
def test_gpu_time_is_written_once_in_thirty_seconds_and_only_past_a_threshold(due: float, writes_it: bool) -> None:
    cluster = reconciled(share(), pod("p"), device(heldSlots=[used("p", 0)]))
    cluster.objects["GPUDevice", "", UUID.format(0).lower()]["status"]["heldSlots"] = [used("p", 0, due=due)]
    made = writes(cluster, SHARE, 1_000.0)
    assert [type(each) for each in made] == ([PatchShare] if writes_it else [])


def test_a_condition_does_not_wait_for_figures() -> None:
    cluster = reconciled(share(), pod("p"))
    state = state_of(cluster)
    record = state.share(Named("n", "s"))
    assert record is not None
    record.written = 100.0
    take(state, cluster.put(device(heldSlots=[slot("p")], unmanaged=[unmanaged("p")])))
    assert [type(write) for write in decide(state, SHARE, NOW, 100.1)] == [PostEvent, PatchShare]


def test_a_status_write_carries_the_version_that_was_seen() -> None:
    cluster = FakeCluster([share()])
    [write] = writes(cluster, SHARE)
    assert isinstance(write, PatchShare)
    assert write.patch["metadata"] == {"resourceVersion": "1"}
