"""The operator as a process of a test, with objects that people create and the statuses of a fake agent."""

import contextlib
import functools
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from kubernetes import client

from orion.node_pods.node_pods_pb2 import Pod
from testbed import binaries
from testbed.ports import free_port
from tests.cluster import node_pods_caller
from tests.cluster.node_pods_caller import Caller
from tests.cluster.rights import bind
from tests.waiting import DEADLINE, eventually

ROOT = Path(__file__).parents[2]
ROLE = ROOT / "charts" / "orion" / "files" / "operator-role.yaml"
GROUP, VERSION = "orion.gpu", "v1alpha1"


class OperatorProcess:
    """`orion operator`, for one namespace or for all.

    With `serves`, it serves the agents of `World`, which makes what is needed for that in the namespace of the Lease.
    """

    program: ClassVar[tuple[str, ...]] = ("-m", "orion.cli", "operator")
    """ Arguments of Python that start the operator. """

    started: ClassVar[list["OperatorProcess"]] = []
    """ The operators of this test that have been started and not ended. """

    def __init__(
        self, kubeconfig: Path, folder: Path, *options: str, name: str = "operator", serves: bool = True
    ) -> None:
        self._kubeconfig, self._options, self.log = kubeconfig, options, folder / f"{name}.log"
        self._port, self._name, self.serves = free_port(), name, serves
        self._process: subprocess.Popen[bytes] | None = None
        self._callers: dict[str, Caller] = {}

    def start(self) -> "OperatorProcess":
        """Start the operator, without waiting; see `wait_until_ready`."""
        command = [sys.executable, *self.program, "--kubeconfig", str(self._kubeconfig)]
        command += ["--address", f"127.0.0.1:{self._port}", *self._options]
        if self.serves:
            command += ["--node-pods-address", "127.0.0.1:0", "--node-pods-name", "localhost"]
        environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        environment["POD_NAME"] = f"{self._name}-{self._port}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.started.append(self)
        return self

    def caller(self, node: str, make: Callable[[Callable[[], int]], Caller]) -> Caller:
        """Return the call of a node's agent to this operator, which `make` makes if there is none yet."""
        if node not in self._callers:
            self._callers[node] = make(lambda: self.node_pods_port)
        return self._callers[node]

    def wait_until_ready(self) -> "OperatorProcess":
        """Wait until the operator knows all objects and holds the Lease, so that it may write."""
        eventually(lambda: self.knows_all() and self.metrics()["orion_operator_leader"] == 1)
        return self

    @property
    def node_pods_port(self) -> int:
        """The port for node agents; 0: the operator does not serve them yet."""
        began = self.log.read_text().rpartition("metrics: on ")[2] if self.log.exists() else ""
        found = re.findall(r"node agents are served on \S+:(\d+)", began)
        return int(found[-1]) if found else 0

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
        if self in self.started:
            self.started.remove(self)
        for caller in self._callers.values():
            caller.close()
        self._callers = {}
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        try:
            return self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
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
        others = "PatchNode|RemoveTaints|PatchDevice"
        return sum(count for name, count in self._writes().items() if not re.search(others, name))

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
    kubeconfig: Path, folder: Path, *options: str, name: str = "operator", serves: bool = True, standby: bool = False
) -> Iterator[OperatorProcess]:
    """Run an operator until the end of the block; with `standby`, do not wait until it holds the Lease."""
    process = OperatorProcess(kubeconfig, folder, *options, name=name, serves=serves).start()
    try:
        eventually(process.knows_all) if standby else process.wait_until_ready()
        yield process
    finally:
        try:
            ended, status = process.ended, process.end()
        finally:
            print(process.log.read_text())  # pytest shows it if the test fails
    assert ended or status == 0  # another status: the operator did not stop in time


class World:
    """Objects of one namespace, and a fake node agent, through an administrator's client."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace, self._core = namespace, client.CoreV1Api(api)
        self._objects = client.CustomObjectsApi(api)
        self.api, self._tokens = api, dict[str, str]()
        self.node = f"{namespace}-usual"
        self.grants = set[tuple[str, str]]()
        """ Each grant that an operator has ever sent, with the name of its pod. """
        node_pods_caller.prepare(api, namespace)

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

    def pod(
        self,
        name: str,
        app: str,
        node: str = "",
        priority: str | None = "be",
        pin: str | None = None,
        labelled: bool = True,
        **marks: str,
    ) -> None:
        """Create a pod as the webhook leaves it, on a node; `marks` are further annotations of orion/."""
        annotations = {f"orion/{key}": value for key, value in marks.items()}
        if pin is not None:
            annotations["orion.gpu/share"] = pin
        if priority:
            annotations["orion/priority"] = priority
        limits = {f"orion.gpu/{priority}": "1"} if priority else {}
        containers = [{"name": "main", "image": "x/y:1", "resources": {"limits": limits}}]
        spec: dict[str, Any] = {"containers": containers, "nodeName": node or self._usual_node()}
        labels = {"app": app} | ({"orion.gpu/priority": priority} if priority and labelled else {})
        meta = {"name": name, "labels": labels, "annotations": annotations}
        self._core.create_namespaced_pod(self.namespace, {"metadata": meta, "spec": spec})

    def run(self, pod: str) -> None:
        """Set a pod's status to running, as its kubelet would."""
        self._core.patch_namespaced_pod_status(pod, self.namespace, {"status": {"phase": "Running"}})

    def end(self, pod: str) -> None:
        """Set a pod's status to succeeded, as its kubelet would."""
        self._core.patch_namespaced_pod_status(pod, self.namespace, {"status": {"phase": "Succeeded"}})

    def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        self._core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)

    def read_pod(self, name: str) -> Any:
        """Return a pod."""
        return self._core.read_namespaced_pod(name, self.namespace)

    def received(self, node: str = "") -> list[dict[str, Pod]]:
        """Return what each running operator tells the agent of a node; an operator that does not answer is left out."""
        node = node or self.node
        if node not in self._tokens:
            self._tokens[node] = node_pods_caller.token(self.api, self.namespace, node)
        calls = [
            operator.caller(node, lambda port: self._call(port, node))
            for operator in OperatorProcess.started
            if operator.serves
        ]
        return [pods for pods in (each.pods for each in calls) if pods is not None]

    def grant(self, pod: str, node: str = "") -> dict[str, Any]:
        """Return a pod's grant, or nothing: no operator answers, they differ, or the pod keeps what it has."""
        texts = {pods[pod].grant if pod in pods else "" for pods in self.received(node)}
        text = texts.pop() if len(texts) == 1 else ""
        return dict(json.loads(text)) if text else {}

    def memory_limits(self) -> set[int | None]:
        """Return the memory limits in the grants of all pods, from all operators; None: no grant, or no limit."""
        texts = [each.grant for pods in self.received() for each in pods.values() if not each.name.startswith("agent-")]
        grants = [json.loads(text) if text else {} for text in texts]
        return {grant.get("containers", {}).get("main", {}).get("memoryLimitBytes") for grant in grants}

    def complaints(self, pod: str) -> set[str]:
        """Return the reasons of all Events that said why a pod has no grant from a share."""
        return {reason for name, reason, _ in self.events() if name == pod}

    def _call(self, port: Callable[[], int], node: str) -> Caller:
        trusted = functools.partial(node_pods_caller.certificates, self.api, self.namespace)
        return Caller(port, trusted, self._tokens[node], self.grants)

    def _usual_node(self) -> str:
        with contextlib.suppress(client.ApiException):  # it exists
            self._core.create_node({"metadata": {"name": self.node}})
        return self.node

    def events(self) -> list[tuple[str, str, str]]:
        """Return the operator's Events: object, reason, note."""
        # As plain objects, because the client's types reject Events that other programs write.
        found = self._objects.list_namespaced_custom_object("events.k8s.io", "v1", self.namespace, "events")
        ours = [each for each in found["items"] if each.get("reportingController") == "orion.gpu/operator"]
        return sorted((each["regarding"]["name"], each["reason"], each["note"]) for each in ours)

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
