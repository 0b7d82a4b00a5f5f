"""The examples' tenants with a test's options, and access to their logs, slots and clients.

Several components say who holds a slot; slot_bookkeeping.py compares them.
"""

import contextlib
import copy
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from testbed.node import Node
from testbed.orion import RESOURCES, Orion
from tests.waiting import eventually

Manifest = dict[str, Any]

EXAMPLES = Path(__file__).parents[2] / "examples"
GROUP = {"group": "orion.gpu", "version": "v1alpha1"}
REPORT = {"report": 0.5}
""" Seconds between two reports of a tenant; short, so that tests wait little. """


def serving(name: str = "serve", /, **options: float) -> Manifest:
    """The example's hp pod, with these options of its program; `kernel_us` is --kernel-us."""
    deployment = next(yaml.safe_load_all((EXAMPLES / "serve.yaml").read_text()))
    return _named({"apiVersion": "v1", "kind": "Pod", **deployment["spec"]["template"]}, name, options)


def training(name: str = "train", /, **options: float) -> Manifest:
    """A pod of the example's be Deployment, with these options of its program."""
    template = yaml.safe_load((EXAMPLES / "train.yaml").read_text())["spec"]["template"]
    return _named({"apiVersion": "v1", "kind": "Pod", **template}, name, options)


def deployed(pod: Manifest, replicas: int) -> Manifest:
    """A Deployment of pods like this one, with the pod's name."""
    deployment: Manifest = yaml.safe_load((EXAMPLES / "train.yaml").read_text())
    labels = pod["metadata"]["labels"]
    template = {"metadata": {**pod["metadata"]}, "spec": pod["spec"]}
    del template["metadata"]["name"]
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {**deployment, "metadata": {"name": labels["app"]}, "spec": spec}


def share(pod: Manifest, **spec: Any) -> Manifest:
    """A GPUShare for a pod, with the pod's name."""
    priority = pod["metadata"]["annotations"]["orion/priority"]
    selector = {"matchLabels": pod["metadata"]["labels"]}
    metadata = {"name": pod["metadata"]["labels"]["app"]}
    spec = {"priority": priority, "selector": selector, **spec}
    return {"apiVersion": "orion.gpu/v1alpha1", "kind": "GPUShare", "metadata": metadata, "spec": spec}


def main_container(pod: Manifest) -> Manifest:
    """The container that uses the GPU."""
    container: Manifest = pod["spec"]["containers"][0]
    return container


def _named(pod: Manifest, name: str, options: Mapping[str, float]) -> Manifest:
    pod = copy.deepcopy(pod)
    pod["metadata"]["name"], pod["metadata"]["labels"] = name, {"app": name}
    for option, value in {**REPORT, **options}.items():
        main_container(pod)["args"] += [f"--{option.replace('_', '-')}", str(value)]
    # A test may have many of these pods on two cores, and each needs little CPU.
    resources = main_container(pod)["resources"]
    resources["requests"]["cpu"] = "10m"
    # The Kubernetes client requires amounts as strings.
    resources["limits"] = {resource: str(amount) for resource, amount in resources["limits"].items()}
    return pod


class Tenants:
    """The pods of one namespace."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.core = client.CoreV1Api(api)

    def make_namespace(self) -> None:
        """Create the namespace, and return once it has the account without which no pod can be created."""
        self.core.create_namespace({"metadata": {"name": self.namespace}})
        accounts = self.core.list_namespaced_service_account
        eventually(lambda: accounts(self.namespace, field_selector="metadata.name=default").items)

    def create(self, *manifests: Manifest) -> None:
        """Create pods, Deployments and GPUShares."""
        for manifest in manifests:
            if manifest["kind"] == "Pod":
                self.core.create_namespaced_pod(self.namespace, manifest)
            elif manifest["kind"] == "Deployment":
                client.AppsV1Api(self.api).create_namespaced_deployment(self.namespace, manifest)
            else:
                client.CustomObjectsApi(self.api).create_namespaced_custom_object(
                    **GROUP, namespace=self.namespace, plural="gpushares", body=manifest
                )

    def scale(self, name: str, replicas: int) -> None:
        """Set the number of a Deployment's pods."""
        scale = {"spec": {"replicas": replicas}}
        client.AppsV1Api(self.api).patch_namespaced_deployment_scale(name, self.namespace, scale)

    def hurry(self, name: str) -> None:
        """Make the kubelet check a pod now. It checks a crashing pod only every 10 s, however short the back-off."""
        now = {"metadata": {"annotations": {"looked-at": str(time.monotonic_ns())}}}
        self.core.patch_namespaced_pod(name, self.namespace, now)

    def delete(self, *names: str) -> None:
        """Delete pods, and return when they are gone."""
        for name in names:
            self.core.delete_namespaced_pod(name, self.namespace)
        eventually(lambda: not set(names) & self.pods().keys(), what=f"{', '.join(names)} did not end")

    def pods(self, app: str = "") -> dict[str, client.V1Pod]:
        """The pods of the namespace, or those of one Deployment or name, by their names."""
        found = self.core.list_namespaced_pod(self.namespace, label_selector=f"app={app}" if app else None)
        return {pod.metadata.name: pod for pod in found.items}

    def begun(self, name: str) -> dict[str, Any]:
        """Wait until a pod's program has its GPU; return the line that the program wrote about it."""
        return eventually(lambda: self.printed(name, "ready"), what=lambda: self.account(name))[0]

    def all_begun(self, app: str, count: int) -> list[str]:
        """Wait until `count` pods of a Deployment have their GPUs; return their names."""
        eventually(lambda: len(self.pods(app)) == count, what=f"{app} has not {count} pods")
        names = sorted(self.pods(app))
        for name in names:
            self.begun(name)
        return names

    def reports(self, name: str, count: int) -> list[dict[str, Any]]:
        """Wait for `count` reports of a pod about intervals that begin after this call, and return the reports."""
        first = len(self.printed(name, "report")) + 1
        eventually(lambda: len(self.printed(name, "report")) >= first + count, what=f"{name} reports no more")
        return self.printed(name, "report")[first : first + count]

    def printed(self, name: str, event: str) -> list[dict[str, Any]]:
        """The complete lines of a pod's log with this event."""
        lines = [json.loads(line) for line in self.log(name).splitlines(keepends=True) if line.endswith("}\n")]
        return [line for line in lines if line["event"] == event]

    def account(self, name: str) -> str:
        """What the cluster knows of a pod: its state, the Events about it, and its log."""
        pod = self.pods().get(name)
        events = [
            f"{event.last_timestamp or event.event_time} {event.reason}: {event.message}" for event in self.events(name)
        ]
        return "\n".join([f"pod {name}", str(pod.status if pod else "deleted"), *events, self.log(name)])

    def events(self, name: str) -> list[Any]:
        """The Events about a pod."""
        about = f"involvedObject.name={name}"
        return list(self.core.list_namespaced_event(self.namespace, field_selector=about).items)

    def log(self, name: str) -> str:
        """A pod's log so far; empty while it has none."""
        with contextlib.suppress(client.ApiException):
            return str(self.core.read_namespaced_pod_log(name, self.namespace))
        return ""


class GpuNode:
    """A node's slots, as the agent and the GPUDevices report them."""

    def __init__(self, node: Node, api: client.ApiClient) -> None:
        self.node, self._api = node, api

    def path(self, path: str) -> Path:
        """The path of a node's file on this machine."""
        return Path(f"/proc/{self.node.init}/root") / path.lstrip("/")

    def snapshot(self) -> agent_pb2.Snapshot:
        """What the agent sees now."""
        with AgentClient(self.path("/run/orion")) as agent:
            return agent.snapshot()

    def slot(self, device: str) -> agent_pb2.Slot:
        """A slot by its device id, as the agent sees it now."""
        uuid, _, name = device.partition("::")
        return next(slot for gpu in self.snapshot().gpus if gpu.uuid == uuid for slot in gpu.slots if slot.name == name)

    def devices(self) -> dict[str, dict[str, Any]]:
        """The statuses of this node's GPUDevices, by UUID."""
        found = client.CustomObjectsApi(self._api).list_cluster_custom_object(**GROUP, plural="gpudevices")["items"]
        statuses = (each.get("status", {}) for each in found)
        return {status["uuid"]: status for status in statuses if status.get("node") == self.node.name}

    def holders(self) -> dict[str, str]:
        """The pods that hold slots, by the slots' names, as GPUDevices say."""
        rows: list[dict[str, Any]] = [row for each in self.devices().values() for row in each.get("heldSlots") or ()]
        return {row["name"]: row["pod"]["name"] for row in rows}

    def condition(self, uuid: str, kind: str) -> dict[str, Any]:
        """A condition of a GPUDevice."""
        found: dict[str, Any] = next(each for each in self.devices()[uuid]["conditions"] if each["type"] == kind)
        return found


@contextlib.contextmanager
def advertising(orion: Orion, node: Node, configuration: Mapping[str, Any], hp: int, be: int) -> Iterator[None]:
    """Apply a configuration, and wait until the node advertises `hp` and `be` slots; afterwards restore the default."""
    orion.wait_until_advertised(node)
    before = orion.allocatable(node)
    orion.configure(configuration)
    try:
        eventually(lambda: orion.allocatable(node) == dict(zip(RESOURCES, (hp, be), strict=True)))
        yield
    finally:
        orion.configure({})
        eventually(lambda: orion.allocatable(node) == before)
