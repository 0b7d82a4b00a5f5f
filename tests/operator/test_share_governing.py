"""Which share governs which pod, and who is named because none does."""

from typing import Any

from tests.operator.fake_cluster import Body, FakeCluster, Reconciler, forget, state_of
from tests.operator.share_objects import (
    NODE,
    condition,
    device,
    events,
    grant_of,
    pinned,
    pod,
    reconciled,
    share,
    slot,
    status,
)


def test_a_pod_without_a_share_gets_the_defaults() -> None:
    grant = grant_of(FakeCluster([pod("p", app="unselected")]))
    assert grant == '{"containers":{"main":{"slots":1}},"failClosed":false,"format":1,"priority":"be"}'


def test_a_share_of_the_other_priority_does_not_govern_and_reports_why() -> None:
    cluster = reconciled(share(priority="hp"), pod("p"))
    assert condition(cluster, "Ready") == (
        "False",
        "PriorityMismatch",
        "pod p: GPUShare s is for priority hp, and this pod's priority is be; make the two equal",
    )
    assert events(cluster) == [("p", "PriorityMismatch"), ("s", "ReadyPriorityMismatch")]


def test_shares_beyond_the_bound_do_not_govern_until_older_ones_go() -> None:
    def aged(name: str, second: int, **spec: Any) -> Body:
        made = share(name, **spec)
        made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{second}Z"
        return made

    pods = [pod("p", app="new"), pod("q", app="other")]
    pods[1]["metadata"]["annotations"]["orion/share"] = "new"
    gpu = device(heldSlots=[slot("p", share="new"), slot("q", "be-1", share="new")])
    cluster = FakeCluster([NODE, aged("old", 1), aged("new", 2, memory={"limit": "1Gi"}), *pods, gpu])
    state = state_of(cluster, most=1)
    Reconciler(cluster, state).run()
    holds, reason, message = condition(cluster, "Ready", "new")
    assert (holds, reason) == ("False", "TooManyShares")
    assert message.startswith("GPUShare new does not govern: only the 1 oldest GPUShares of a namespace do; delete")
    assert events(cluster) == [("new", "ReadyTooManyShares"), ("q", "TooManyShares")]
    assert state.ungoverning() == {"n": 1}
    assert '"share":' not in grant_of(cluster, most=1)
    cluster.delete(("GPUShare", "n", "old"))
    Reconciler(cluster, state).run(forget(state, ("GPUShare", "n", "old")))
    assert condition(cluster, "Ready", "new")[1] == "Granted"
    assert '"share":"new"' in grant_of(cluster, most=1)
    assert state.ungoverning() == {}


def test_a_share_that_ceases_to_govern_leaves_the_grants_of_its_pods() -> None:
    cluster = reconciled(share(memory={"limit": "1Gi"}), pinned("s"))
    earlier = share("earlier")
    earlier["metadata"]["creationTimestamp"] = ""
    cluster.objects["GPUShare", "n", "s"]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.put(earlier)
    Reconciler(cluster, state_of(cluster, most=1)).run()
    assert ("p", "TooManyShares") in events(cluster)
    assert grant_of(cluster, most=1) == ""  # the agent keeps the grant that it has


def test_a_pod_that_did_not_pass_the_webhook_is_named() -> None:
    bare = pod("p")
    bare["spec"]["containers"][0]["resources"] = {}
    cluster = reconciled(share(), bare)
    assert condition(cluster, "Ready")[1] == "NotAdmitted"
    assert "p; delete them and create them again" in condition(cluster, "Ready")[2]
    assert grant_of(cluster) == ""


def test_pods_without_the_annotation_are_counted_and_the_first_sixteen_named() -> None:
    cluster = reconciled(share(), *(pod(f"p{number:02}", priority=None) for number in range(20)))
    pods = status(cluster)["pods"]
    assert pods["unannotated"] == 20
    assert pods["unannotatedNames"] == [f"p{number:02}" for number in range(16)]
    assert events(cluster) == [("s", "PodsWithoutAnnotation")]


def test_an_unreadable_share_changes_no_grant_and_is_reported() -> None:
    cluster = reconciled(share(memory={"limit": "1Gi"}), pinned("s"))
    cluster.put(share(memory={"limit": "1Gi"}, compute="heavy"))
    Reconciler(cluster, state_of(cluster)).run()
    assert condition(cluster, "Ready")[:2] == ("False", "Unreadable")
    assert grant_of(cluster) == ""  # the agent keeps the grant that it has
    assert ("p", "Unreadable") in events(cluster)
