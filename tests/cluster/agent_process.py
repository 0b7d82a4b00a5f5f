"""The node agent as a test's process, on simulated GPUs, with a real API server and operator, and a stand-in kubelet.

The kubelet is a stand-in that serves only the PodResources interface. It runs no pods: the test itself starts the
processes of a pod, in the slots that the pod holds.
"""

import contextlib
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubernetes import client

from orion.crds.annotations import PINNED_SHARE, PRIORITY_LABEL
from orion.node_agent.kubelet import api_pb2
from tests.cluster.rights import bind
from tests.cluster.serving_operator import ServingOperator
from tests.hook.harness import Machine
from tests.node_agent.node_stand_in import StandInKubelet
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "charts" / "orion" / "files" / "agent-role.yaml"
GROUP, VERSION, DEVICES = "orion.gpu", "v1alpha1", "gpudevices"


class Kubelet(StandInKubelet):
    """A stand-in that also reports what plugins advertise."""

    def __init__(self, socket: Path) -> None:
        super().__init__(socket)
        self.advertised: dict[str, list[str]] = {}

    def GetAllocatableResources(self, request: Any, context: Any) -> api_pb2.AllocatableResourcesResponse:  # noqa: N802
        advertised = [
            api_pb2.ContainerDevices(resource_name=resource, device_ids=ids)
            for resource, ids in self.advertised.items()
        ]
        return api_pb2.AllocatableResourcesResponse(devices=advertised)


class AgentNode(Machine):
    """A machine with GPUs whose UUIDs come from `seed`, its kubelet, and the agent of a node."""

    start_seconds = 60.0  # an agent in a cluster imports a lot, which takes a while on two busy cores

    def __init__(
        self, build: Path, operator: ServingOperator, node: str, kubeconfig: Path, seed: str, gpus: int = 2
    ) -> None:
        self._seed = seed
        super().__init__(build, gpus)
        self.node, self._kubeconfig, self._operator = node, kubeconfig, operator
        self.kubelet = Kubelet(self.folder / "kubelet.sock")
        self.kubelet.start()

    def _list_gpus(self, gpus: int) -> list[str]:
        self.environment["ORION_SIM_SEED"] = self._seed
        return super()._list_gpus(gpus)

    def start_agent(self, *options: str) -> None:
        """Start the agent and wait until it serves."""
        common = ["--node-name", self.node, "--kubeconfig", str(self._kubeconfig), "--metrics-address", "127.0.0.1:0"]
        common += ["--pod-resources", str(self.kubelet.socket), "--recovery-seconds", "1"]
        common += ["--claim-seconds", "1", *self._operator.options(self.node, self.folder)]
        super().start_agent(*common, *options)

    def metrics(self) -> dict[str, float]:
        """Return the agent's metrics by name and labels."""
        line = next(line for line in self.agent_log().splitlines() if " metrics: on " in line)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(line.rpartition(" ")[2], timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def simulated(self, *command: str) -> None:
        """Change the simulated machine: `simulated("lose", "0")` makes its GPU 0 fail."""
        program = [sys.executable, "-m", "orion.hook.simulated", "--library", str(self.simulated_library), *command]
        subprocess.run(program, env=self.environment, check=True, capture_output=True, timeout=60)

    def make_gpus_again(self, **settings: str) -> None:
        """Change the simulated machine's settings, such as `ORION_SIM_GPUS="1"`; the agent must not run."""
        shutil.rmtree(self.state)
        self.environment |= settings

    def close(self) -> None:
        """End agent and kubelet."""
        self.kubelet.stop()
        super().close()


class ClusterView:
    """Devices, pods and Events through an administrator's client."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace, self.core = namespace, client.CoreV1Api(api)
        self._objects = client.CustomObjectsApi(api)

    def device(self, uuid: str) -> dict[str, Any]:
        """Return a GPUDevice, or an empty object if there is none."""
        try:
            return dict(self._objects.get_cluster_custom_object(GROUP, VERSION, DEVICES, uuid.lower()))
        except client.ApiException as error:
            if error.status == 404:
                return {}
            raise

    def status(self, uuid: str) -> dict[str, Any]:
        """Return a GPUDevice's status."""
        return dict(self.device(uuid).get("status") or {})

    def condition(self, uuid: str, kind: str) -> tuple[str, str]:
        """Return a condition's status and reason."""
        for each in self.status(uuid).get("conditions") or ():
            if each["type"] == kind:
                return each["status"], each["reason"]
        return "", ""

    def change(self, uuid: str, **spec: Any) -> None:
        """Change a GPUDevice's spec, as a person does."""
        self._objects.patch_cluster_custom_object(GROUP, VERSION, DEVICES, uuid.lower(), {"spec": spec})

    def delete(self, uuid: str) -> None:
        """Delete a GPUDevice if it exists."""
        with contextlib.suppress(client.ApiException):
            self._objects.delete_cluster_custom_object(GROUP, VERSION, DEVICES, uuid.lower())

    def events(self, name: str, namespace: str = "default") -> dict[str, str]:
        """Return the agents' Events about an object: the latest note by reason."""
        # As plain objects, because the client's types reject Events that other programs write.
        selector = {"field_selector": f"regarding.name={name}"}
        found = self._objects.list_namespaced_custom_object("events.k8s.io", "v1", namespace, "events", **selector)
        ours = [each for each in found["items"] if each.get("reportingController") == "orion.gpu/agent"]
        return {each["reason"]: each["note"] for each in sorted(ours, key=lambda each: each["eventTime"])}

    def pod(self, name: str, node: str, priority: str = "be", **spec: Any) -> None:
        """Create a pod on a node as the webhook would; with `spec`, a GPUShare of the same name governs it."""
        if spec:
            head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUShare", "metadata": {"name": name}}
            share = {**head, "spec": {"priority": priority, **spec}}
            self._objects.create_namespaced_custom_object(GROUP, VERSION, self.namespace, "gpushares", share)
        limits = {f"{GROUP}/{priority}": "1"}
        containers = [{"name": "main", "image": "none", "resources": {"limits": limits}}]
        annotations = {"orion/priority": priority, PINNED_SHARE: name if spec else ""}
        of_pod = {"nodeName": node, "containers": containers, "terminationGracePeriodSeconds": 0}
        metadata = {"name": name, "labels": {PRIORITY_LABEL: priority}, "annotations": annotations}
        made = {"metadata": metadata, "spec": of_pod}
        self.core.create_namespaced_pod(self.namespace, made)

    def share_uid(self, name: str) -> str:
        """Return the uid of a GPUShare."""
        found = self._objects.get_namespaced_custom_object(GROUP, VERSION, self.namespace, "gpushares", name)
        return str(found["metadata"]["uid"])

    def change_share(self, name: str, **spec: Any) -> None:
        """Change a GPUShare's spec."""
        arguments = (GROUP, VERSION, self.namespace, "gpushares", name, {"spec": spec})
        self._objects.patch_namespaced_custom_object(*arguments)

    def delete_share(self, name: str) -> None:
        """Delete a GPUShare."""
        self._objects.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, "gpushares", name)


def grant_rights(api: client.ApiClient, operator: ServingOperator, user: str) -> None:
    """Give a user exactly the rights of the chart's roles for agents; Orion's namespace is that of the operator."""
    bind(api, ROLE, user, operator.namespace)


@contextlib.contextmanager
def machine(
    build: Path, operator: ServingOperator, node: str, kubeconfig: Path, seed: str, view: ClusterView, gpus: int = 2
) -> Iterator[AgentNode]:
    """Run a node's machine until the end of the block; afterwards its GPUDevices are deleted."""
    with AgentNode(build, operator, node, kubeconfig, seed, gpus) as made:
        try:
            yield made
        finally:
            for uuid in made.uuids:
                view.delete(uuid)


def is_written(view: ClusterView, uuid: str, node: str) -> bool:
    """Return whether a GPU's device names a node."""
    return view.status(uuid).get("node") == node


def until_written(view: ClusterView, node: AgentNode) -> None:
    """Wait until all GPUs of a node have their devices."""
    for uuid in node.uuids:
        eventually(lambda uuid=uuid: is_written(view, uuid, node.node), what=node.agent_log())  # type: ignore[misc]
