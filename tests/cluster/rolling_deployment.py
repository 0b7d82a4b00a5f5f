"""A Deployment of one hp pod in a rolling update without a kubelet: the test does what kubelet and agent would do.

A test that uses it also imports the fixtures.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from testbed.access import Access
from testbed.control_plane import ControlPlane
from tests.cluster.conftest import NODES_OF, client_for
from tests.cluster.operator_process import World
from tests.waiting import DEADLINE, eventually

HP, LABEL = "orion.gpu/hp", "orion.gpu/rollout"


@pytest.fixture
def control_plane(own_control_plane: ControlPlane) -> Access:
    """A control plane for this test alone: the operators of other tests write the labels of all nodes, too."""
    return own_control_plane.access


@pytest.fixture
def api(control_plane: Access) -> Iterator[client.ApiClient]:
    with client_for(control_plane.kubeconfig) as administrator:
        yield administrator


class RollingDeployment:
    """A Deployment of one hp pod on a node with one GPU and one hp slot, without a kubelet."""

    def __init__(self, world: World, node: str) -> None:
        self._world, self.node = world, node
        self.uuid = f"GPU-{world.namespace.removeprefix('test-')[:8]}-0000-4000-8000-000000000000"
        self._core, self._apps = client.CoreV1Api(world.api), client.AppsV1Api(world.api)

    def create(self) -> None:
        """Create the Deployment with the default strategy."""
        container = {"name": "main", "image": "x/y:1", "resources": {"limits": {HP: "1"}}}
        labels = {"app": "web", "orion.gpu/priority": "hp"}  # no webhook runs here to write the second
        template = {
            "metadata": {"labels": labels, "annotations": {"orion/priority": "hp"}},
            "spec": {"containers": [container], "nodeSelector": {NODES_OF: self._world.namespace}},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        self._apps.create_namespaced_deployment(self._world.namespace, {"metadata": {"name": "web"}, "spec": spec})

    def restart(self) -> None:
        """Change the pod template, as `kubectl rollout restart` does."""
        change = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
        self._apps.patch_namespaced_deployment("web", self._world.namespace, change)

    def pods(self) -> dict[str, Any]:
        """The Deployment's pods by name."""
        found = self._core.list_namespaced_pod(self._world.namespace, label_selector="app=web").items
        return {pod.metadata.name: pod for pod in found}

    def placed(self, count: int, seconds: float = DEADLINE) -> list[str]:
        """Wait until the scheduler has placed so many pods, and return their names."""

        def placed() -> list[str]:
            names = sorted(name for name, pod in self.pods().items() if pod.spec.node_name)
            return names if len(names) == count else []

        return eventually(placed, seconds=seconds)

    def hold(self, *pods: str) -> None:
        """Report that these pods hold the GPU's hp slots, as the agent does."""
        rows = [
            {"name": f"hp-{number}", "priority": "hp", "pod": self._world.reference(pod)}
            for number, pod in enumerate(pods)
        ]
        slots = {"hp": {"total": 1, "held": len(pods)}, "be": {"total": 0, "held": 0}}
        memory = {"total": "80Gi", "used": "1Gi"}
        self._world.fake_agent_reports(self.uuid, node=self.node, heldSlots=rows, slots=slots, memory=memory)

    def advertise(self, slots: int) -> None:
        """Report this many hp slots, as the kubelet does."""
        amounts = {HP: str(slots)}
        self._core.patch_node_status(self.node, {"status": {"capacity": amounts, "allocatable": amounts}})

    def label(self) -> str:
        """The node's label."""
        labels: dict[str, str] = self._core.read_node(self.node).metadata.labels
        return labels.get(LABEL, "")

    def waits(self) -> bool:
        """Whether the scheduler has found no node for a pod."""
        found = (each for pod in self.pods().values() for each in pod.status.conditions or ())
        return any(each.reason == "Unschedulable" for each in found)
