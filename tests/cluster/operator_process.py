"""The operator as a process of a test, with objects that people create and the statuses of a fake agent."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kubernetes import client

from testbed import binaries
from tests.cluster.audited_plane import bind
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "charts" / "orion" / "files" / "operator-role.yaml"
GROUP, VERSION = "orion.gpu", "v1alpha1"
GRANT = "orion.gpu/grant"


class OperatorProcess:
    """`orion operator`, for one namespace or for all."""

    def __init__(self, kubeconfig: Path, folder: Path, *options: str, name: str = "operator") -> None:
        self._kubeconfig, self._options, self.log = kubeconfig, options, folder / f"{name}.log"
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "OperatorProcess":
        """Start the operator, without waiting; see `wait_until_ready`."""
        command = [sys.executable, "-m", "orion.cli", "operator", "--kubeconfig", str(self._kubeconfig)]
        command += ["--address", f"127.0.0.1:{self._port}", *self._options]
        environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        return self

    def wait_until_ready(self) -> "OperatorProcess":
        """Wait until the operator knows all objects and holds the Lease, so that it may write."""
        eventually(lambda: self.knows_all() and self.metrics()["orion_operator_leader"] == 1)
        return self

    def knows_all(self) -> bool:
        """Return whether the operator knows all objects; it may still be on standby."""
        return self.running and self._answers("/readyz")

    @property
    def running(self) -> bool:
        """Return True if the operator runs. If it has ended, fail with its log as the message."""
        assert self._process
        assert self._process.poll() is None, self.log.read_text()[-2_000:]
        return True

    @property
    def ended(self) -> bool:
        """Return whether the operator has ended for any reason."""
        return self._process is None or self._process.poll() is not None

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End the operator; return its exit status."""
        assert self._process
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    def metrics(self) -> dict[str, float]:
        """Return the operator's metrics by name and labels."""
        text = self._get("/metrics")
        return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.MULTILINE)}

    def writes(self) -> float:
        """Return how many writes the operator has made, without its writes of the Lease."""
        return sum(self._writes().values())

    def writes_in_namespaces(self) -> float:
        """Return how many writes the operator has made, without its writes of the Lease, of nodes and of GPUs.

        The operator also writes the nodes and GPUs of other tests on the same control plane.
        """
        return sum(count for name, count in self._writes().items() if not re.search("PatchNode|PatchDevice", name))

    def _writes(self) -> dict[str, float]:
        made = self.metrics()
        return {name: count for name, count in made.items() if name.startswith("orion_operator_writes_total")}

    def at_rest(self) -> bool:
        """Return whether the operator's queue is empty."""
        return self.metrics()["orion_operator_waiting"] == 0

    def _answers(self, path: str) -> bool:
        try:
            return self._get(path) == "ok\n"
        except OSError:
            return False

    def _get(self, path: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
            return str(answer.read().decode())


@contextlib.contextmanager
def running_operator(
    kubeconfig: Path, folder: Path, *options: str, name: str = "operator"
) -> Iterator[OperatorProcess]:
    """Run an operator until the end of the block."""
    process = OperatorProcess(kubeconfig, folder, *options, name=name).start()
    try:
        yield process.wait_until_ready()
    finally:
        if not process.ended:
            process.end()
        print(process.log.read_text())  # pytest shows it if the test fails


class World:
    """Objects of one namespace, and a fake node agent, through an administrator's client."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace, self._core = namespace, client.CoreV1Api(api)
        self._objects, self._events = client.CustomObjectsApi(api), client.EventsV1Api(api)

    def share(self, name: str, **spec: Any) -> None:
        """Create a GPUShare; its selector is `app: NAME` unless given."""
        spec = {"selector": {"matchLabels": {"app": name}}, "priority": "be"} | spec
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUShare", "metadata": {"name": name}, "spec": spec}
        self._objects.create_namespaced_custom_object(GROUP, VERSION, self.namespace, "gpushares", body)

    def change_share(self, name: str, **spec: Any) -> None:
        """Change a GPUShare's spec."""
        self._objects.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, "gpushares", name, {"spec": spec})

    def delete_share(self, name: str) -> None:
        """Delete a GPUShare."""
        self._objects.delete_namespaced_custom_object(GROUP, VERSION, self.namespace, "gpushares", name)

    def scribble(self, name: str, message: str) -> None:
        """Write invalid values into a GPUShare's status, as a user with too many rights could."""
        condition = {"type": "Ready", "status": "False", "reason": "Scribble", "message": message}
        condition["lastTransitionTime"] = "2026-01-02T03:04:05Z"
        body = {"status": {"conditions": [condition], "pods": {"governed": 99}}}
        arguments = (GROUP, VERSION, self.namespace, "gpushares", name, body)
        self._objects.patch_namespaced_custom_object_status(*arguments)

    def share_status(self, name: str) -> dict[str, Any]:
        """Return a GPUShare's status."""
        found = self._objects.get_namespaced_custom_object(GROUP, VERSION, self.namespace, "gpushares", name)
        return dict(found.get("status") or {})

    def condition(self, share: str, kind: str) -> tuple[str, str]:
        """Return a condition's status and reason."""
        for each in self.share_status(share).get("conditions") or ():
            if each["type"] == kind:
                return each["status"], each["reason"]
        return "", ""

    def pod(self, name: str, app: str, node: str = "", priority: str | None = "be", **marks: str) -> None:
        """Create a pod as the webhook leaves it, but without a grant; `marks` are further annotations of orion/."""
        annotations = {f"orion/{key}": value for key, value in marks.items()}
        if priority:
            annotations["orion/priority"] = priority
        limits = {f"orion.gpu/{priority}": "1"} if priority else {}
        spec: dict[str, Any] = {"containers": [{"name": "main", "image": "x/y:1", "resources": {"limits": limits}}]}
        if node:
            spec["nodeName"] = node
        meta = {"name": name, "labels": {"app": app}, "annotations": annotations}
        self._core.create_namespaced_pod(self.namespace, {"metadata": meta, "spec": spec})

    def run(self, pod: str) -> None:
        """Set a pod's status to running, as its kubelet would."""
        self._core.patch_namespaced_pod_status(pod, self.namespace, {"status": {"phase": "Running"}})

    def relabel(self, pod: str, app: str) -> None:
        """Change a pod's label `app`."""
        self._core.patch_namespaced_pod(pod, self.namespace, {"metadata": {"labels": {"app": app}}})

    def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        self._core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)

    def read_pod(self, name: str) -> Any:
        """Return a pod."""
        return self._core.read_namespaced_pod(name, self.namespace)

    def grant(self, pod: str) -> dict[str, Any]:
        """Return a pod's grant, or nothing."""
        text = (self.read_pod(pod).metadata.annotations or {}).get(GRANT)
        return dict(json.loads(text)) if text else {}

    def memory_limits(self) -> set[int | None]:
        """Return the memory limits in the grants of all pods; None: no grant, or no limit."""
        limits: set[int | None] = set()
        for pod in self._core.list_namespaced_pod(self.namespace).items:
            text = (pod.metadata.annotations or {}).get(GRANT)
            grant = json.loads(text) if text else {}
            limits.add(grant.get("containers", {}).get("main", {}).get("memoryLimitBytes"))
        return limits

    def complaint(self, pod: str) -> str:
        """Return the reason in the condition that says why the pod has no grant from a share, or nothing."""
        conditions = self.read_pod(pod).status.conditions or []
        return next((each.reason for each in conditions if each.type == "orion.gpu/Governed"), "")

    def events(self) -> list[tuple[str, str, str]]:
        """Return the operator's Events: object, reason, note."""
        found = self._events.list_namespaced_event(self.namespace).items
        ours = [each for each in found if each.reporting_controller == "orion.gpu/operator"]
        return sorted((each.regarding.name, each.reason, each.note) for each in ours)

    def fake_agent_reports(self, uuid: str, spec: Mapping[str, Any] | None = None, **status: Any) -> None:
        """Create a GPUDevice if there is none, and write its status, as its node's agent would."""
        name = uuid.lower()
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUDevice", "metadata": {"name": name}, "spec": spec or {}}
        with contextlib.suppress(client.ApiException):
            self._objects.create_cluster_custom_object(GROUP, VERSION, "gpudevices", body)
        status = {"uuid": uuid, "model": "NVIDIA H200", "mode": "timeslice", "health": "Healthy"} | status
        self._objects.patch_cluster_custom_object_status(GROUP, VERSION, "gpudevices", name, {"status": status})

    def change_device(self, uuid: str, **spec: Any) -> None:
        """Change a GPUDevice's spec, as a person does."""
        self._objects.patch_cluster_custom_object(GROUP, VERSION, "gpudevices", uuid.lower(), {"spec": spec})

    def device_status(self, uuid: str) -> dict[str, Any]:
        """Return the status of a GPU."""
        found = self._objects.get_cluster_custom_object(GROUP, VERSION, "gpudevices", uuid.lower())
        status: dict[str, Any] = found["status"]
        return status

    def devices(self) -> set[str]:
        """Return the names of all GPUDevices."""
        found = self._objects.list_cluster_custom_object(GROUP, VERSION, "gpudevices")["items"]
        return {each["metadata"]["name"] for each in found}

    def delete_device(self, uuid: str) -> None:
        """Delete a GPUDevice."""
        self._objects.delete_cluster_custom_object(GROUP, VERSION, "gpudevices", uuid.lower())

    def reference(self, pod: str) -> dict[str, str]:
        """Return a pod reference as an agent writes it."""
        return {"namespace": self.namespace, "name": pod, "container": "main"}


def apply(kubeconfig: Path, path: Path) -> None:
    """Apply manifests as the kubeconfig's user."""
    program = binaries.find_all()["kubectl"]
    command = [str(program), "--kubeconfig", str(kubeconfig), "apply", "--server-side", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def grant_rights(api: client.ApiClient, user: str, namespace: str) -> None:
    """Give a user exactly the rights of the chart's role; the Lease is in `namespace`."""
    bind(api, ROLE, user, namespace)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
