"""For which pod a node is opened during a rolling update, and until when."""

from orion.crds.allocation import Allocation
from orion.operator.reconciler.records import Named
from orion.operator.reconciler.rollout_labels import REASON_MEMORY
from orion.operator.reconciler.rollouts import SLICE_S
from tests.operator.rollout_cluster import UUID, full


def test_a_node_is_open_until_the_new_pod_has_its_slot_and_the_kubelet_reports_no_further_one() -> None:
    cluster = full()
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    assert cluster.label(slots=2) == "open"
    cluster.pod("new", "b", "node", running=False)
    assert cluster.label(slots=2) == "open", "the agent does not know yet that the pod has the slot"
    cluster.gpu("old", "new")
    assert cluster.label(slots=2) == "ends-"
    assert cluster.label(slots=2) == "ends-"
    assert cluster.label(slots=1) == ""
    cluster.pod("new", "b", "node")
    assert cluster.label() == ""


def test_where_claims_give_slots_the_label_stays_until_the_driver_has_written_its_slice() -> None:
    cluster = full(Allocation.DRA)
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    cluster.pod("new", "b", "node", running=False)
    assert cluster.label() == "open", "the agent does not know yet that the pod has the slot"
    cluster.gpu("old", "new")
    assert [cluster.label(), cluster.label()] == ["ends-", "ends-"]
    cluster.now += SLICE_S - 1
    assert cluster.label() == "ends-"
    cluster.now += 1
    assert cluster.label() == ""


def test_where_claims_give_slots_a_free_slot_opens_no_further_one() -> None:
    cluster = full(Allocation.DRA)
    cluster.gpu(number=1)
    cluster.pod("new", "b")
    assert cluster.label() == ""


def test_the_next_rolling_update_begins_with_the_pod_of_the_last() -> None:
    cluster = full()
    cluster.state.drop_pod(Named("n", "old"))
    cluster.gpu("new")
    cluster.pod("new", "b", "node")
    cluster.pod("newer", "c")
    assert cluster.label() == "open"


def test_only_a_pod_of_another_revision_of_a_running_workload_opens_a_node() -> None:
    cluster = full()
    cluster.pod("second-replica", "a")
    cluster.pod("outsider", "b", workload="other")
    assert cluster.label() == ""
    cluster.state.drop_pod(Named("n", "second-replica"))
    cluster.pod("new", "b")
    assert cluster.label(slots=2) == "", "the node has a free slot"
    assert cluster.label() == "open"


def test_a_further_replica_of_the_old_revision_does_not_get_the_slot_of_the_new_pod() -> None:
    cluster = full()
    cluster.pod("second-replica", "a")
    assert cluster.label() == ""
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    assert cluster.opened_for("new")
    assert not cluster.opened_for("second-replica")


def test_a_new_pod_without_room_opens_no_node_and_gets_an_event() -> None:
    cluster = full()
    cluster.share("50Gi")
    cluster.gpu("old", used="40Gi")
    cluster.pod("new", "b")
    assert (cluster.label(), cluster.complains("new")) == ("", REASON_MEMORY)
    cluster.gpu("old", used="30Gi")
    assert (cluster.label(), cluster.complains("new")) == ("open", "")


def test_memory_that_best_effort_gives_back_is_room_for_a_new_pod() -> None:
    cluster = full()
    cluster.share("40Gi")
    cluster.gpu("old", used="70Gi", returnable="29Gi")
    cluster.pod("new", "b")
    assert (cluster.label(), cluster.complains("new")) == ("", REASON_MEMORY)
    cluster.gpu("old", used="70Gi", returnable="30Gi")
    assert (cluster.label(), cluster.complains("new")) == ("open", "")


def test_a_label_without_a_revision_goes_away() -> None:
    cluster = full()
    for label in ("a" * 32, "x"):  # of an older operator; by hand
        cluster.labels["node"] = label
        cluster.node()
        assert cluster.label() == "ends-"
        assert not cluster.labels["node"].endswith("."), "the API server refuses such a value"
        assert cluster.label() == ""


def test_a_restarted_operator_continues_a_rolling_update() -> None:
    cluster = full()
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    after = full()
    after.labels = cluster.labels
    after.pod("new", "b")
    assert after.label(slots=2) == "open"
    after.pod("new", "b", "node", running=False)
    after.gpu("old", "new")
    assert after.label(slots=2) == "ends-"


def test_a_cordoned_gpu_does_not_hide_a_slot_that_the_kubelet_still_reports() -> None:
    cluster = full()
    cluster.gpu(number=1)
    cordoned = cluster.state.devices[UUID.format(1).lower()]
    cordoned.cordon = True
    cluster.pod("new", "b")
    assert cluster.label(slots=1) == "open"
    cluster.state.drop_pod(Named("n", "new"))
    assert cluster.label(slots=2) == "ends-"
    assert cluster.label(slots=2) == "ends-", "others would get the slot that the kubelet still reports"
    assert cluster.label(slots=1) == ""
