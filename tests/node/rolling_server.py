"""A Deployment of one hp pod that rolling updates replace."""

from typing import Any

from kubernetes import client

from testbed.node import Node
from tests.cluster.conftest import Kubectl
from tests.node.gpu_tenants import Manifest, Tenants, deployed, main_container, serving
from tests.waiting import eventually

LABEL = "orion.gpu/rollout"
MINUTES = 300
""" The longest time of a rollout: kubelet and scheduler take up to 10 s for each step, on a busy machine more. """


def server() -> Manifest:
    """A Deployment of one hp pod with the default strategy. A pod that ends answers until its address is forgotten."""
    deployment = deployed(serving("serve"), 1)
    pod = deployment["spec"]["template"]
    main_container(pod)["lifecycle"] = {"preStop": {"sleep": {"seconds": 3}}}
    main_container(pod)["readinessProbe"]["periodSeconds"] = 1
    return deployment


class Rollout:
    """The rolling updates of the Deployment `serve`."""

    def __init__(self, tenants: Tenants, kubectl: Kubectl, node: Node) -> None:
        self._tenants, self._kubectl, self._node = tenants, kubectl, node

    def restart(self) -> None:
        """Begin a rolling update."""
        self._kubectl("rollout", "restart", "deployment/serve", "--namespace", self._tenants.namespace)

    def finishes(self) -> str:
        """Wait until the rolling update has finished and the old pod is gone; return the name of the new pod."""

        def done() -> bool:
            found = client.AppsV1Api(self._tenants.api).read_namespaced_deployment("serve", self._tenants.namespace)
            status = found.status
            return bool(
                status.observed_generation == found.metadata.generation
                and (status.updated_replicas, status.replicas, status.available_replicas) == (1, 1, 1)
                and len(self._tenants.pods("serve")) == 1
            )

        eventually(done, seconds=MINUTES, what=f"the rollout does not finish: {self.shown()}")
        return next(iter(self._tenants.pods("serve")))

    def shown(self) -> Any:
        """What people see of pods and node, for a test that fails."""
        pods = self._tenants.pods().items()
        labels = self._tenants.core.read_node(self._node.name).metadata.labels
        return {name: [each.message for each in pod.status.conditions or ()] for name, pod in pods}, labels

    def label(self) -> str | None:
        """The label of the node's rollout."""
        labels: dict[str, str] = self._tenants.core.read_node(self._node.name).metadata.labels
        return labels.get(LABEL)
