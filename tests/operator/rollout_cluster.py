"""One cluster during rolling updates of hp workloads: its nodes, GPUs and pods, and the labels of its nodes."""

from typing import Any

from orion.crds.allocation import Allocation
from orion.crds.claims import CLAIM
from orion.operator.reconciler.records import Named, device_record, node_record, pod_record, share_record
from orion.operator.reconciler.rollout_labels import rollout_complaint, rollout_label
from orion.operator.reconciler.state import State

UUID = "GPU-00000000-0000-4000-8000-00000000000{}"
WAITS = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


class Cluster:
    """The state of one cluster, its time, and the labels of its nodes."""

    def __init__(self, allocation: Allocation = Allocation.DEVICE_PLUGIN) -> None:
        self.state, self.now, self._version = State(allocation=allocation), 0.0, 0
        self._by_claims = allocation.by_claims
        self.labels: dict[str, str] = {}

    def node(self, name: str = "node", slots: int = 1) -> None:
        """A node whose kubelet reports this many hp slots."""
        labels = {"orion.gpu/rollout": self.labels[name]} if self.labels.get(name) else {}
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
        self.labels[node] = rollout_label(self.state, self.state.nodes[node], self.now).value or ""
        self.node(node, slots)
        prefix, _, revision = self.labels[node].rpartition("-")
        return f"{prefix}-" if prefix else "open" if revision else ""

    def opened_for(self, name: str) -> bool:
        """Whether the node's label is that of a pod's revision."""
        pod = self.state.pod(Named("n", name))
        assert pod is not None
        return self.labels["node"] == str(pod.revision)

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
