"""Which share governs a pod that was pinned at its admission, and what its agent receives."""

import json
from typing import Any

from tests.operator.fake_cluster import FakeCluster
from tests.operator.share_objects import condition, events, grant_of, pinned, pod, reconciled, share


def governed_by(cluster: FakeCluster) -> Any:
    text = grant_of(cluster)
    return json.loads(text).get("share") if text else "as before"


def test_the_pinned_share_governs_whatever_labels_and_selectors_are_later() -> None:
    assert governed_by(reconciled(share("s"), pinned("s", app="relabelled"))) == "s"
    assert (
        governed_by(reconciled(share("s"), share("later", selector={"matchLabels": {"app": "s"}}), pinned("s"))) == "s"
    )
    assert governed_by(reconciled(share("s"), share("other"), pinned("s", app="other"))) == "s"


def test_a_pod_that_no_share_governed_follows_selectors_and_its_own_name_of_a_share() -> None:
    assert governed_by(reconciled(share("s"), pinned(""))) == "s"
    assert governed_by(reconciled(share("other"), pinned("", **{"orion/share": "other"}))) == "other"
    assert governed_by(reconciled(pinned(""))) is None
    assert governed_by(reconciled(share("s"), pod("p"))) == "s"  # of a release that pinned nothing


def test_a_pod_whose_share_was_deleted_keeps_its_grant_and_a_new_share_of_the_name_governs_it() -> None:
    cluster = reconciled(pinned("gone"))
    assert governed_by(cluster) == "as before"
    assert events(cluster) == [("p", "ShareDeleted")]
    assert governed_by(reconciled(share("s"), pinned("gone"))) == "s"
    assert governed_by(reconciled(share("gone"), pinned("gone"))) == "gone"
    named = pinned("gone", **{"orion/share": "gone"})
    assert events(reconciled(named)) == [("p", "ShareDeleted")]


def test_a_pinned_share_of_the_other_priority_does_not_govern_and_says_so() -> None:
    cluster = reconciled(share("s", priority="hp"), pinned("s"))
    assert governed_by(cluster) == "as before"
    assert condition(cluster, "Ready")[:2] == ("False", "PriorityMismatch")


def test_two_selectors_that_match_leave_a_pod_as_it_is() -> None:
    both = {"matchLabels": {"app": "s"}}
    cluster = reconciled(share("one", selector=both), share("two", selector=both), pinned(""))
    assert governed_by(cluster) == "as before"
    assert condition(cluster, "Ready", "one")[:2] == ("False", "SelectorsOverlap")


def test_a_pod_that_leaves_keeps_its_grant() -> None:
    leaving = pinned("s")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert governed_by(reconciled(share("s"), leaving)) == "as before"
