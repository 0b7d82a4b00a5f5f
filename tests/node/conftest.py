"""Fixtures of the node tier: a cluster with a real node, a namespace for each test, and the node itself.

All tests of a worker share one cluster and run one after the other. A test that breaks a component of the node repairs
it. A test that needs a second node takes `second_node`.
"""

import contextlib
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client

from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import Orion
from tests.cluster.conftest import api, kubeconfig_for, kubectl, programs
from tests.node.claimed_gpus import claiming_webhook, claims, offering
from tests.node.cluster_parts import control_plane, node
from tests.node.disturbed_pods import computing, fixed, occupants
from tests.node.gpu_tenants import GROUP, GpuNode, Tenants
from tests.waiting import eventually

__all__ = [
    "api",
    "claiming_webhook",
    "claims",
    "computing",
    "control_plane",
    "fixed",
    "kubeconfig_for",
    "kubectl",
    "node",
    "occupants",
    "offering",
    "programs",
]


@pytest.fixture(scope="session")
def cluster(programs: dict[str, Path]) -> Iterator[Cluster]:
    """A control plane with one node, `node-1`, whose components are children of this process."""
    with (
        tempfile.TemporaryDirectory(prefix="orion-cluster-") as folder,
        Cluster(Path(folder) / "cluster", programs, ["node-1"]) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def orion(cluster: Cluster) -> Iterator[Orion]:
    """Orion on the cluster, with two simulated GPUs on `node-1`, and the image of the examples there."""
    impatient = {
        "agent": ["--recovery-seconds", "1", "--claim-seconds", "1", "--cgroups", "/sys/fs/cgroup"],
        "device-plugin": ["--agent-patience", "2"],
    }
    installed = Orion(cluster, options=impatient)
    try:
        installed.start()
        yield installed
    finally:
        installed.stop()


@pytest.fixture
def second_node(cluster: Cluster, api: client.ApiClient) -> Iterator[Node]:
    """A second node, `node-2`, for this test alone (takes 2 s); the scheduler may choose either node."""
    core = client.CoreV1Api(api)
    yield cluster.add_node("node-2")
    cluster.remove_node("node-2")
    core.delete_node("node-2")
    for pod in core.list_pod_for_all_namespaces(field_selector="spec.nodeName=node-2").items:
        # The node is gone, so no kubelet confirms that its pods have ended.
        core.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace, grace_period_seconds=0)


@contextlib.contextmanager
def _new_namespace(api: client.ApiClient) -> Iterator[str]:
    core, name = client.CoreV1Api(api), f"test-{uuid.uuid4().hex[:10]}"
    core.create_namespace({"metadata": {"name": name}})
    selector = "metadata.name=default"
    eventually(lambda: core.list_namespaced_service_account(name, field_selector=selector).items)
    yield name
    core.delete_namespace(name)
    core.delete_collection_namespaced_pod(name, grace_period_seconds=1)
    eventually(lambda: not core.list_namespaced_pod(name).items, what="the test's pods are gone")


@pytest.fixture
def namespace(api: client.ApiClient) -> Iterator[str]:
    """A namespace for this test alone, with its service account; its pods are gone when the next test begins."""
    with _new_namespace(api) as name:
        yield name


@pytest.fixture(scope="module")
def module_namespace(api: client.ApiClient) -> Iterator[str]:
    """One namespace for all tests of a file, whose pods share a scene that takes seconds to set up."""
    with _new_namespace(api) as name:
        yield name


@pytest.fixture
def tenants(orion: Orion, api: client.ApiClient, namespace: str) -> Tenants:
    """The namespace's pods that use the GPUs, and the output of their programs."""
    return Tenants(api, namespace)


@pytest.fixture
def gpus(orion: Orion, node: Node, api: client.ApiClient) -> GpuNode:
    """What the node's agent and the GPUDevices say."""
    return GpuNode(node, api)


@pytest.fixture
def cordon(orion: Orion, api: client.ApiClient) -> Iterator[Callable[[str, bool], None]]:
    """Closes a GPU to further pods, or opens it: `cordon(uuid, True)`; all are open at the end."""
    changed: set[str] = set()

    def change(gpu: str, closed: bool) -> None:
        changed.add(gpu)
        client.CustomObjectsApi(api).patch_cluster_custom_object(
            **GROUP, plural="gpudevices", name=gpu.lower(), body={"spec": {"cordon": closed}}
        )

    yield change
    for gpu in changed:
        change(gpu, False)


@pytest.fixture
def lose(node: Node) -> Iterator[Callable[[str, str], None]]:
    """Makes a GPU fail or restores it: `lose("lose", uuid)`, `lose("restore", uuid)`; restores all GPUs at the end."""
    lost: set[str] = set()

    def change(what: str, gpu: str) -> None:
        lost.add(gpu)
        node.run([sys.executable, "-m", "orion.hook.simulated", what, gpu])

    yield change
    for gpu in lost:
        change("restore", gpu)
