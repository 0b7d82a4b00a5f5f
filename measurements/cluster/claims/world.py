"""A cluster with a node whose GPUs are given by ResourceClaims, for the experiments of this package.

Everything is real but the GPUs: API server, scheduler, kubelet, containerd, and Orion with the chart's rights.
"""

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import client, config

from measurements.cluster.claims.manifests import Manifest
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, NoAgent
from testbed import binaries
from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import Orion

DRA = {"group": "resource.k8s.io", "version": "v1"}
PATIENCE_S = 120.0
POLL_S = 0.002


@dataclass
class World:
    """The cluster; `options` are those of Orion's processes, and count from a process's next start."""

    orion: Orion
    node: Node
    api: client.ApiClient
    options: dict[str, Sequence[str]] = field(default_factory=dict)

    @property
    def core(self) -> client.CoreV1Api:
        """Pods, nodes, namespaces."""
        return client.CoreV1Api(self.api)

    @property
    def objects(self) -> client.CustomObjectsApi:
        """All other kinds."""
        return client.CustomObjectsApi(self.api)

    @property
    def root(self) -> Path:
        """The agent's directory, as this process sees it."""
        return Path(f"/proc/{self.node.init}/root/run/orion")

    @property
    def kubelet(self) -> Path:
        """The kubelet's root directory, as this process sees it."""
        return self.node.folder / "lib" / "kubelet"

    def give_by(self, allocation: str) -> None:
        """Let the nodes' GPUs be given by device plugins, or by claims (`dra`); return when they are offered."""
        if allocation == self.orion.allocation:
            return
        old, begin = ("plugin", self.orion.begin_driver) if allocation == "dra" else ("driver", self.orion.begin_plugin)
        nodes = self.orion.cluster.nodes.values()
        for each in nodes:
            self.orion.end(each, old)
        self.orion.allocate(allocation)
        for each in nodes:
            begin(each)
        if allocation == "dra":
            until(lambda: len(self.devices()) == self.orion.gpus * len(nodes), "the slices")
        else:
            for each in nodes:
                self.orion.wait_until_advertised(each)

    def devices(self) -> list[dict[str, Any]]:
        """Return the devices that the driver's slices offer now."""
        found = self.objects.list_cluster_custom_object(**DRA, plural="resourceslices")["items"]
        return [device for each in found for device in each["spec"].get("devices") or ()]

    def snapshot(self) -> agent_pb2.Snapshot:
        """Return the agent's snapshot.

        Raises:
            NoAgent: no agent answers.
        """
        with AgentClient(self.root, timeout=1) as agent:
            return agent.snapshot()

    def agent_answers(self) -> bool:
        """Return whether an agent answers."""
        with contextlib.suppress(NoAgent):
            return bool(self.snapshot().gpus)
        return False

    def driver_log(self) -> str:
        """Return the driver's log so far."""
        return self.orion.log(f"{self.node.name}-driver")

    @contextlib.contextmanager
    def namespace(self) -> Iterator[str]:
        """Make a namespace; remove it and its pods afterwards."""
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self.core.create_namespace({"metadata": {"name": name}})
        until(lambda: bool(self.core.list_namespaced_service_account(name).items), "a service account")
        yield name
        self.core.delete_collection_namespaced_pod(name, grace_period_seconds=0)
        until(lambda: not self.core.list_namespaced_pod(name).items, "no pod is left")
        self.core.delete_namespace(name)

    def create(self, namespace: str, *manifests: Manifest) -> None:
        """Create pods, GPUShares and templates of claims."""
        for each in manifests:
            if each["kind"] == "Pod":
                self.core.create_namespaced_pod(namespace, each)
                continue
            group, _, version = each["apiVersion"].partition("/")
            self.objects.create_namespaced_custom_object(group, version, namespace, f"{each['kind'].lower()}s", each)


def until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S, pause_s: float = POLL_S) -> float:
    """Wait for a condition; return the monotonic time at which it was seen.

    Raises:
        TimeoutError: it did not come.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(pause_s)
    return time.monotonic()


@contextlib.contextmanager
def world(
    gpus: int,
    slots: Mapping[str, int],
    options: Mapping[str, Sequence[str]] | None = None,
    allocation: str = "dra",
    nodes: Sequence[str] = ("node-1",),
) -> Iterator[World]:
    """Run a cluster.

    Args:
        gpus: number of simulated GPUs.
        slots: of each GPU, by role.
        options: more options of Orion's commands.
        allocation: how the GPUs are given.
        nodes: names; most experiments look at the first node.
    """
    chosen = dict(options or {})
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="orion-cluster-", dir="/tmp"))
        cluster = stack.enter_context(Cluster(Path(folder) / "cluster", binaries.find_all(), nodes))
        orion = stack.enter_context(Orion(cluster, {"slots": dict(slots)}, gpus, chosen))
        orion.start()
        settings = client.Configuration()
        config.load_kube_config(str(cluster.access.kubeconfig), client_configuration=settings)
        settings.proxy = None
        api = stack.enter_context(client.ApiClient(settings))
        made = World(orion, cluster.nodes[nodes[0]], api, chosen)
        made.give_by(allocation)
        yield made
