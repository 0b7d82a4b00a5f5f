"""Fixtures of the tests that break something on the node: pods to disturb, and a finaliser that repairs the node."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from kubernetes import client

from orion.crds.annotations import PINNED_SHARE
from orion.node_agent.api.client import NoAgent
from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import RESOURCES, Orion
from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, serving, share, training
from tests.node.running_pod import JoinedClient, RunningPod
from tests.node.slot_bookkeeping import SlotBookkeeping
from tests.waiting import eventually

LIMIT = 6 << 30
""" Bytes of GPU memory that the pods' shares grant; differs from every default. """
REPORT = {"report": 0.2}
ATTEMPT_SECONDS = 2.0


@pytest.fixture
def fixed(cluster: Cluster, orion: Orion, node: Node, namespace: str) -> Iterator[None]:
    """After the test, start every component that does not run. The test fails if a component has crashed."""
    yield
    crashed = [fault for part in (cluster, orion) if (fault := part.fault())]
    if not cluster.control_plane.runs("kube-apiserver"):
        cluster.control_plane.begin("kube-apiserver")
    cluster.control_plane.wait_until_ready()
    if not node.runs("kubelet"):
        node.begin("kubelet")
    if "orion/operator" not in orion.pids():
        orion.begin_operator()
    orion.configure({})
    begin_what_is_missing(orion, node)
    if f"orion/{node.name}-plugin-2" in orion.pids():
        orion.end(node, "plugin-2")
    orion.wait_until_advertised(node)
    assert not crashed, "\n".join(crashed)


def begin_what_is_missing(orion: Orion, node: Node) -> None:
    """Start the parts of Orion that do not run on the node, whether a test ended them or they crashed."""
    if not orion.runs(node, "mps"):
        orion.begin_mps_daemon(node)
    if not orion.runs(node, "agent"):
        orion.begin_agent(node)
    if not orion.runs(node, "plugin"):
        orion.begin_plugin(node)


def kubelet_log(node: Node) -> str:
    """Return the kubelet's log since the node was made; it names each pod that the kubelet knows."""
    return (node.folder / "logs" / "kubelet.log").read_text(errors="replace")


def registrations(orion: Orion, node: Node, plugin: str = "plugin") -> int:
    """Return how often a device plugin has registered a resource so far."""
    with contextlib.suppress(FileNotFoundError):
        return orion.log(f"{node.name}-{plugin}").count("registered with the kubelet")
    return 0


def wait_until_registered(orion: Orion, node: Node, plugin: str = "plugin", since: int = 0) -> None:
    """Wait until a device plugin has registered both resources after its first `since` registrations."""
    eventually(lambda: registrations(orion, node, plugin) >= since + len(RESOURCES))


@dataclass
class Occupants:
    """The pods of one namespace, and the state of their slots on the node, in the agent and in the kubelet."""

    tenants: Tenants
    gpus: GpuNode
    books: SlotBookkeeping
    pods: dict[str, RunningPod] = field(default_factory=dict)

    def create(self, *manifests: Manifest) -> None:
        """Create objects, and wait until the programs of the pods have their GPU."""
        self.tenants.create(*manifests)
        for manifest in manifests:
            self.begun(manifest["metadata"]["name"])

    def begun(self, name: str) -> RunningPod:
        """Wait until a pod's program has its GPU, and return the pod."""
        pod = self.seen(name)
        eventually(lambda: pod.printed("ready"), what=lambda: self.tenants.account(name))
        return pod

    def begins_soon(self, name: str) -> RunningPod:
        """Wait until a pod runs whose container could not begin at first, and return the pod.

        The kubelet tries again some 10 s after a failure, and also when the pod changes. So this changes the pod.
        """
        pod = self.seen(name)
        attempts = itertools.count()

        def begun() -> bool:
            labels = {"metadata": {"labels": {"attempt": str(next(attempts))}}}
            self.tenants.core.patch_namespaced_pod(name, self.tenants.namespace, labels)
            with contextlib.suppress(AssertionError):
                return eventually(pod.processes, seconds=ATTEMPT_SECONDS) != []
            return False

        eventually(begun, what=lambda: self.tenants.account(name))
        return pod

    def seen(self, name: str) -> RunningPod:
        """Return a pod that exists."""
        self.pods[name] = RunningPod.of(self.gpus, self.tenants.pods()[name])
        return self.pods[name]

    def clients(self) -> dict[str, JoinedClient]:
        """Wait until each pod's process has joined, and return the clients by the pods' names."""
        return {name: pod.joined_client() for name, pod in self.pods.items()}

    def compute(self) -> None:
        """Wait until all pods have computed for a while."""
        for pod in self.pods.values():
            pod.computes()

    def restarts(self, name: str) -> int:
        """Return how often the container of a pod has restarted."""
        statuses = self.tenants.pods()[name].status.container_statuses
        return int(statuses[0].restart_count) if statuses else 0

    def waits(self, name: str) -> str:
        """Return the kubelet's message about why a pod's container waits; empty if it does not wait."""
        for status in self.tenants.pods()[name].status.container_statuses or ():
            if status.state.waiting:
                return str(status.state.waiting.message or "")
        return ""

    def complaints(self, name: str) -> str:
        """Return the messages of the Events about a pod."""
        return "\n".join(str(event.message) for event in self.tenants.events(name))

    def live(self) -> list[RunningPod]:
        """Return all pods of the namespace that have not failed."""
        pods = self.tenants.pods().values()
        return [RunningPod.of(self.gpus, pod) for pod in pods if pod.status.phase != "Failed"]

    def managed(self) -> int:
        """Return how many processes of the pods have joined."""
        with contextlib.suppress(NoAgent):
            return sum(len(pod.clients()) for pod in self.live())
        return 0

    def wait_until_pinned(self, manifest: Manifest) -> None:
        """Wait until the webhook would pin a share to a new pod like this one; it learns of shares with a delay."""

        def pinned() -> bool:
            pod = self.tenants.core.create_namespaced_pod(self.tenants.namespace, manifest, dry_run="All")
            return bool(pod.metadata.annotations[PINNED_SHARE])

        eventually(pinned)


@pytest.fixture
def occupants(orion: Orion, node: Node, api: client.ApiClient, namespace: str, fixed: None) -> Occupants:
    """A node on which everything runs, without pods."""
    return Occupants(Tenants(api, namespace), GpuNode(node, api), SlotBookkeeping(node, api))


@pytest.fixture
def computing(occupants: Occupants) -> Occupants:
    """An hp pod `serve` that is failClosed, and a be pod `train` on another GPU; shares grant them a memory limit."""
    limit = {"memory": {"limit": str(LIMIT)}}
    pods = serving(**REPORT), training(**REPORT)
    occupants.tenants.create(share(pods[0], failClosed=True, **limit), share(pods[1], **limit))
    for pod in pods:
        occupants.wait_until_pinned(pod)
        occupants.create(pod)
        wait_until_reserved(occupants, occupants.pods[pod["metadata"]["name"]].joined_client())
        occupants.pods[pod["metadata"]["name"]].is_granted(LIMIT)
    return occupants


def wait_until_reserved(occupants: Occupants, joined: JoinedClient) -> None:
    """Wait until the plugin knows that a pod reserves memory. It then prefers another GPU for the next be pod."""

    def reserved() -> bool:
        snapshot = json.loads(occupants.gpus.path("/run/orion/device-plugin.json").read_text())
        return any(each["uuid"] == joined.gpu and "memoryReservedBytes" in each for each in snapshot["devices"])

    eventually(reserved)
