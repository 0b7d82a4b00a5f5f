"""Fixtures of the tests that break something on the node: pods to be disturbed, and a finaliser that mends it all."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from kubernetes import client

from orion.crds.annotations import GRANT
from orion.node_agent.api.client import NoAgent
from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import RESOURCES, Orion
from tests.node.gpu_tenants import GpuNode, Manifest, Tenants, serving, share, training
from tests.node.seen_from_below import RunningPod, Seat
from tests.node.slot_bookkeeping import SlotBookkeeping
from tests.waiting import eventually

LIMIT = 6 << 30
""" Bytes of GPU memory that the pods' shares grant: none of the defaults. """
REPORT = {"report": 0.2}
ATTEMPT_SECONDS = 2.0


@pytest.fixture
def fixed(cluster: Cluster, orion: Orion, node: Node, namespace: str) -> Iterator[None]:
    """All that is to run runs again when the test has ended, however it did; what has crashed fails the test."""
    yield
    crashed = [fault for part in (cluster, orion) if (fault := part.fault())]
    if not cluster.control_plane.runs("kube-apiserver"):
        cluster.control_plane.begin("kube-apiserver")
    cluster.control_plane.wait_until_ready()
    if not node.runs("kubelet"):
        node.begin("kubelet")
    orion.configure({})
    begin_what_is_missing(orion, node)
    if f"orion/{node.name}-plugin-2" in orion.pids():
        orion.end(node, "plugin-2")
    orion.wait_until_advertised(node)
    assert not crashed, "\n".join(crashed)


def begin_what_is_missing(orion: Orion, node: Node) -> None:
    """Start what does not run on the node, whether it was ended or has crashed."""
    if not orion.runs(node, "mps"):
        orion.begin_mps_daemon(node)
    if not orion.runs(node, "agent"):
        orion.begin_agent(node)
    if not orion.runs(node, "plugin"):
        orion.begin_plugin(node)


def kubelet_log(node: Node) -> str:
    """Return what the kubelet has said since the node was made; it names each pod that it hears of."""
    return (node.folder / "logs" / "kubelet.log").read_text(errors="replace")


def registrations(orion: Orion, node: Node, plugin: str = "plugin") -> int:
    """Return how often a device plugin has registered a resource so far."""
    with contextlib.suppress(FileNotFoundError):
        return orion.log(f"{node.name}-{plugin}").count("registered with the kubelet")
    return 0


def wait_until_registered(orion: Orion, node: Node, plugin: str = "plugin", since: int = 0) -> None:
    """Return when a device plugin has registered both resources since it had registered so many."""
    eventually(lambda: registrations(orion, node, plugin) >= since + len(RESOURCES))


@dataclass
class Occupants:
    """One namespace's pods, and all that knows of their slots."""

    tenants: Tenants
    gpus: GpuNode
    books: SlotBookkeeping
    pods: dict[str, RunningPod] = field(default_factory=dict)

    def create(self, *manifests: Manifest) -> None:
        """Make pods, and return when their programs have their GPU."""
        self.tenants.create(*manifests)
        for manifest in manifests:
            self.begun(manifest["metadata"]["name"])

    def begun(self, name: str) -> RunningPod:
        """Return a pod when its program has its GPU."""
        pod = self.seen(name)
        eventually(lambda: pod.said("ready"), what=f"{name} did not begin: {self.tenants.pods()[name].status}")
        return pod

    def begins_soon(self, name: str) -> RunningPod:
        """Return a pod whose container did not begin at first when it runs.

        The kubelet tries again some 10 s after it failed, and also when the pod changes.
        """
        pod = self.seen(name)
        attempts = itertools.count()

        def begun() -> bool:
            labels = {"metadata": {"labels": {"attempt": str(next(attempts))}}}
            self.tenants.core.patch_namespaced_pod(name, self.tenants.namespace, labels)
            with contextlib.suppress(AssertionError):
                return eventually(pod.processes, seconds=ATTEMPT_SECONDS) != []
            return False

        eventually(begun, what=f"{name} did not begin: {self.tenants.pods()[name].status}")
        return pod

    def seen(self, name: str) -> RunningPod:
        """Return a pod that was made."""
        self.pods[name] = RunningPod.of(self.gpus, self.tenants.pods()[name])
        return self.pods[name]

    def seats(self) -> dict[str, Seat]:
        """Return where each pod's process has joined, when all have."""
        return {name: pod.seated() for name, pod in self.pods.items()}

    def compute(self) -> None:
        """Return when all of them have computed for a while."""
        for pod in self.pods.values():
            pod.computes()

    def restarts(self, name: str) -> int:
        """Return how often the container of a pod has begun again."""
        statuses = self.tenants.pods()[name].status.container_statuses
        return int(statuses[0].restart_count) if statuses else 0

    def waits(self, name: str) -> str:
        """Return what the container of a pod waits for, in the kubelet's words; empty if it does not wait."""
        for status in self.tenants.pods()[name].status.container_statuses or ():
            if status.state.waiting:
                return str(status.state.waiting.message or "")
        return ""

    def complaints(self, name: str) -> str:
        """Return what has been said of a pod in Events."""
        events = self.tenants.core.list_namespaced_event(
            self.tenants.namespace, field_selector=f"involvedObject.name={name}"
        )
        return "\n".join(str(event.message) for event in events.items)

    def live(self) -> list[RunningPod]:
        """Return the pods that have not failed, whoever made them."""
        pods = self.tenants.pods().values()
        return [RunningPod.of(self.gpus, pod) for pod in pods if pod.status.phase != "Failed"]

    def managed(self) -> int:
        """Return how many pods have a process that has joined."""
        with contextlib.suppress(NoAgent):
            return sum(len(pod.seats()) for pod in self.live())
        return 0

    def wait_until_granted(self, manifest: Manifest, what: str) -> None:
        """Return when a pod like this one would get such a grant: the webhook hears of shares in its own time."""

        def granted() -> bool:
            pod = self.tenants.core.create_namespaced_pod(self.tenants.namespace, manifest, dry_run="All")
            return what in pod.metadata.annotations.get(GRANT, "")

        eventually(granted)


@pytest.fixture
def occupants(orion: Orion, node: Node, api: client.ApiClient, namespace: str, fixed: None) -> Occupants:
    """A node that is whole, without pods."""
    return Occupants(Tenants(api, namespace), GpuNode(node, api), SlotBookkeeping(node, api))


@pytest.fixture
def computing(occupants: Occupants) -> Occupants:
    """An hp pod `serve` that is failClosed, and a be pod `train` on another GPU; shares grant them a limit."""
    limit = {"memory": {"limit": str(LIMIT)}}
    pods = serving(**REPORT), training(**REPORT)
    occupants.tenants.create(share(pods[0], failClosed=True, **limit), share(pods[1], **limit))
    for pod in pods:
        occupants.wait_until_granted(pod, str(LIMIT))
        occupants.create(pod)
        wait_until_promised(occupants, occupants.pods[pod["metadata"]["name"]].seated())
        occupants.pods[pod["metadata"]["name"]].is_granted(LIMIT)
    return occupants


def wait_until_promised(occupants: Occupants, seat: Seat) -> None:
    """Return when the plugin knows that a pod's memory is promised: the next be pod comes to another GPU then."""

    def promised() -> bool:
        word = json.loads(occupants.gpus.path("/run/orion/device-plugin.json").read_text())
        return any(each["uuid"] == seat.gpu and "memoryReservedBytes" in each for each in word["devices"])

    eventually(promised)
