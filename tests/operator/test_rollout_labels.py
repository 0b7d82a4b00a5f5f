"""For which workload a node is opened during a rolling update, step by step."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orion.crds.allocation import Allocation
from orion.crds.claims import CLAIM
from orion.operator.reconciler.records import Named, device_record, node_record, pod_record, share_record
from orion.operator.reconciler.rollout_labels import REASON_MEMORY, rollout_complaint, rollout_label
from orion.operator.reconciler.rollouts import AGAIN_S, ENDS_S, SLICE_S, WINDOW_S
from orion.operator.reconciler.state import State

UUID = "GPU-00000000-0000-4000-8000-00000000000{}"
WAITS = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


class Cluster:
    """The state of one cluster, its time, and the labels of its nodes."""

    def __init__(self, allocation: Allocation = Allocation.DEVICE_PLUGIN) -> None:
        self.state, self.now, self._version = State(allocation=allocation), 0.0, 0
        self._by_claims = allocation.by_claims
        self._labels: dict[str, str] = {}

    def node(self, name: str = "node", slots: int = 1) -> None:
        """A node whose kubelet reports this many hp slots."""
        labels = {"orion.gpu/rollout": self._labels[name]} if self._labels.get(name) else {}
        status: dict[str, Any] = {"allocatable": {} if self._by_claims else {"orion.gpu/hp": str(slots)}}
        meta: dict[str, Any] = {"name": name, "uid": name, "labels": labels}
        self.state.put_node(node_record({"metadata": meta, "status": status}))

    def gpu(self, *pods: str, number: int = 0, node: str = "node", used: str = "1Gi", returnable: str = "0") -> None:
        """A GPU with one hp slot, and the pods that hold hp slots of it."""
        held = [
            {"name": f"hp-{place}", "priority": "hp", "pod": {"namespace": "n", "name": pod, "container": "main"}}
            for place, pod in enumerate(pods)
        ]
        status = {"node": node, "uuid": UUID.format(number), "heldSlots": held, "slots": {"hp": {"total": 1}}}
        status["memory"] = {"total": "80Gi", "used": used, "returnable": returnable}
        meta = {"name": UUID.format(number).lower(), "uid": str(number)}
        self.state.put_device(device_record({"metadata": meta, "status": status}), 0.0)

    def pod(self, name: str, revision: str, node: str = "", workload: str = "web", running: bool | None = None) -> None:
        """An hp pod of a Deployment's ReplicaSet; without a node, the scheduler has found none for it."""
        self._version += 1
        phase = "Running" if (bool(node) if running is None else running) else "Pending"
        owner = {"kind": "ReplicaSet", "name": f"{workload}-{revision}", "controller": True}
        meta: dict[str, Any] = {"namespace": "n", "name": name, "uid": name, "resourceVersion": str(self._version)}
        meta |= {"labels": {"pod-template-hash": revision}, "ownerReferences": [owner]}
        meta |= {"annotations": {"orion/priority": "hp"}, "creationTimestamp": f"2026-01-01T00:00:{self._version:02}Z"}
        resources: dict[str, Any] = {"limits": {"orion.gpu/hp": "1"}}
        spec: dict[str, Any] = {}
        if self._by_claims:
            resources = {"claims": [{"name": CLAIM, "request": "main"}]}
            spec["resourceClaims"] = [{"name": CLAIM, "resourceClaimTemplateName": "t"}]
        spec["containers"] = [{"name": "main", "resources": resources}]
        status: dict[str, Any] = {"phase": phase} | ({} if node else {"conditions": WAITS})
        self.state.put_pod(pod_record({"metadata": meta, "spec": spec | {"nodeName": node}, "status": status}))

    def share(self, memory: str) -> None:
        """A share that reserves memory for all pods."""
        meta = {"namespace": "n", "name": "s", "uid": "s", "generation": 1}
        spec = {"priority": "hp", "selector": {}, "memory": {"request": memory}}
        self.state.put_share(share_record({"metadata": meta, "spec": spec}))
        self.state.advance("n", float("inf"))

    def label(self, node: str = "node", slots: int = 1) -> str:
        """Apply the label that a node must have now, and return it without the workload's hash."""
        self.node(node, slots)
        self._labels[node] = rollout_label(self.state, self.state.nodes[node], self.now).value or ""
        self.node(node, slots)
        prefix, _, revision = self._labels[node].rpartition("-")
        return f"{prefix}-" if prefix else "open" if revision else ""

    def opened_for(self, name: str) -> bool:
        """Whether the node's label is that of a pod's revision."""
        pod = self.state.pod(Named("n", name))
        assert pod is not None
        return self._labels["node"] == str(pod.revision)

    def complains(self, name: str) -> str:
        """The reason of the Event about a pod."""
        pod = self.state.pod(Named("n", name))
        assert pod is not None
        complaint = rollout_complaint(self.state, pod)
        return complaint.reason if complaint else ""


def full(allocation: Allocation = Allocation.DEVICE_PLUGIN) -> Cluster:
    """A node with one GPU, whose hp slot has the only pod of a Deployment."""
    cluster = Cluster(allocation)
    cluster.gpu("old")
    cluster.pod("old", "a", "node")
    assert cluster.label() == ""
    return cluster


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


def test_the_second_of_two_new_pods_gets_its_own_minute_once_the_first_has_replaced_its_pod() -> None:
    cluster = full()
    cluster.pod("new", "b")
    cluster.pod("newer", "b")
    assert cluster.label() == "open"
    cluster.now += WINDOW_S - 1
    cluster.pod("newer", "b", "node", running=False)  # the scheduler may choose either
    assert cluster.label(slots=2) == "open"
    cluster.gpu("old", "newer")
    assert [cluster.label(slots=2), cluster.label()] == ["ends-", ""], "this GPU has two pods until the old one ends"
    cluster.now += 2 * WINDOW_S
    assert cluster.label() == ""
    cluster.pod("old-2", "a", "node")
    cluster.gpu("old-2", number=1)
    assert cluster.label(slots=2) == "open", "another GPU has an old pod alone"
    cluster.state.drop_pod(Named("n", "old-2"))
    cluster.gpu(number=1)
    cluster.now += WINDOW_S
    assert [cluster.label(slots=3), cluster.label(slots=2)] == ["ends-", ""]
    cluster.now += AGAIN_S
    cluster.state.drop_pod(Named("n", "old"))
    cluster.pod("newer", "b", "node")
    cluster.gpu("newer")
    cluster.gpu("old-2", number=1)
    cluster.pod("old-2", "a", "node")
    assert cluster.label(slots=2) == "open"
    cluster.now += WINDOW_S - 1
    assert cluster.label(slots=2) == "open"


def test_one_new_pod_opens_one_node_and_another_after_a_minute() -> None:
    cluster = full()
    cluster.gpu("old-2", number=1, node="node-2")
    cluster.pod("old-2", "a", "node-2")
    cluster.pod("new", "b")
    assert (cluster.label(), cluster.label("node-2")) == ("open", "")
    cluster.now += WINDOW_S
    assert (cluster.label(), cluster.label("node-2")) == ("ends-", "open")
    cluster.now += WINDOW_S
    assert (cluster.label(), cluster.label("node-2")) == ("", "ends-")
    assert (cluster.label(), cluster.label("node-2")) == ("", "")
    cluster.now += AGAIN_S
    assert cluster.label() == "open"


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


def test_a_kubelet_that_reports_nothing_does_not_keep_a_node_closed() -> None:
    cluster = full()
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    cluster.state.drop_pod(Named("n", "new"))
    assert [cluster.label(slots=2), cluster.label(slots=2)] == ["ends-", "ends-"]
    cluster.now += ENDS_S
    assert cluster.label(slots=2) == ""


def test_a_label_without_a_revision_goes_away() -> None:
    cluster = full()
    for label in ("a" * 32, "x"):  # of an older operator; by hand
        cluster._labels["node"] = label
        cluster.node()
        assert cluster.label() == "ends-"
        assert not cluster._labels["node"].endswith("."), "the API server refuses such a value"
        assert cluster.label() == ""


def test_time_without_the_lease_does_not_count() -> None:
    cluster = full()
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    cluster.now += 2 * WINDOW_S
    cluster.state.rollouts.leads()
    assert cluster.label(slots=2) == "open"
    cluster.now += WINDOW_S
    assert cluster.label(slots=2) == "ends-"


def test_a_restarted_operator_continues_a_rolling_update() -> None:
    cluster = full()
    cluster.pod("new", "b")
    assert cluster.label() == "open"
    after = full()
    after._labels = cluster._labels
    after.pod("new", "b")
    assert after.label(slots=2) == "open"
    after.pod("new", "b", "node", running=False)
    after.gpu("old", "new")
    assert after.label(slots=2) == "ends-"


def test_a_tenant_who_replaces_its_new_pod_again_and_again_does_not_keep_a_node_closed() -> None:
    cluster = full()
    samples: list[bool] = []
    for number in range(int(AGAIN_S / 20)):
        cluster.state.drop_pod(Named("n", f"new-{number - 1}"))
        cluster.pod(f"new-{number}", "b")
        samples.append(cluster.label() != "")
        cluster.now += 20
    assert sum(samples) <= len(samples) / 2


def test_a_rolling_update_of_many_pods_of_one_node_goes_on() -> None:
    cluster = full()
    for number in range(10):
        new = f"new-{number}"
        cluster.pod(new, "b")
        assert cluster.label() == "open"
        cluster.pod(new, "b", "node", running=False)
        cluster.gpu("old", new)
        assert [cluster.label(slots=2), cluster.label()] == ["ends-", ""]
        cluster.state.drop_pod(Named("n", new))
        cluster.gpu("old")


step = st.tuples(
    st.sampled_from(["new", "newer", "other", "outsider"]),
    st.sampled_from(["b", "c"]),
    st.sampled_from(["", "node", "gone"]),
    st.sampled_from([1, 2]),
    st.sampled_from([0.0, 1.0, 30.0, WINDOW_S]),
)


@given(st.lists(step, max_size=20))
def test_new_pods_that_never_run_close_a_node_for_others_a_minute_each(
    steps: list[tuple[str, str, str, int, float]],
) -> None:
    cluster = full()
    for name, revision, node, slots, passes in steps:
        if node == "gone":
            cluster.state.drop_pod(Named("n", name))
        else:
            cluster.pod(name, revision, node, "other" if name == "outsider" else "web", running=False)
        cluster.label(slots=slots)
        cluster.now += passes
    samples: list[bool] = []
    while len(samples) < AGAIN_S / 10:
        cluster.now += 10
        samples.append(cluster.label() != "")
    assert sum(samples) <= 4 * (WINDOW_S / 10 + 2), "four pods, a window for each of them in this time"


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


def test_a_node_is_looked_at_again_when_its_offer_to_a_waiting_pod_may_be_made() -> None:
    cluster = full()
    cluster.gpu("old-2", number=1, node="node-2")
    cluster.pod("old-2", "a", "node-2")
    cluster.pod("new", "b")
    assert (cluster.label(), cluster.label("node-2")) == ("open", "")
    again = rollout_label(cluster.state, cluster.state.nodes["node-2"], cluster.now).again
    assert again is not None
    assert again <= WINDOW_S
    cluster.now += WINDOW_S
    assert (cluster.label(), cluster.label(), cluster.label("node-2")) == ("ends-", "", "open")
    again = rollout_label(cluster.state, cluster.state.nodes["node"], cluster.now).again
    assert again is not None
    assert again <= AGAIN_S
