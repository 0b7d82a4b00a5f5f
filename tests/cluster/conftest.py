"""Fixtures of the cluster tier: a control plane, a namespace and nodes for each test, and clients.

All workers of a run share one control plane. So objects without a namespace (CRDs, webhook configurations, cluster
roles) are visible to every test: name them after the test's namespace, or apply the same objects in all tests. A test
that restarts or breaks components takes `own_control_plane`.
"""

import json
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from testbed import binaries, keeping
from testbed.access import Access
from testbed.control_plane import ControlPlane
from tests.cluster import agent_process, api_types, running_webhook
from tests.cluster.admitted_pods import wait_until_admission_works
from tests.cluster.agent_process import ClusterView
from tests.cluster.claiming_cluster import Cluster
from tests.cluster.operator_process import OperatorProcess, World, grant_rights, running_operator
from tests.cluster.running_webhook import LABEL, RunningWebhook
from tests.cluster.serving_operator import ServingOperator, serving_operator
from tests.waiting import eventually

Kubectl = Callable[..., str]
FakeNode = Callable[..., str]
NODES_OF = "orion-test/namespace"  # a node's label: the namespace whose pods the node is for
NODE_SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"  # a namespace's annotation (PodNodeSelector)


@pytest.fixture(scope="session")
def control_plane(testrun_uid: str) -> Iterator[Access]:
    """Access to the control plane of this run. The first test that needs it starts it, and the last worker ends it."""
    with keeping.shared(Path(tempfile.gettempdir()) / f"orion-cluster-{testrun_uid}") as access:
        yield access


@pytest.fixture(scope="session")
def programs() -> dict[str, Path]:
    """The control plane's binaries and kubectl, by name."""
    return binaries.find_all()


@pytest.fixture
def own_control_plane(programs: dict[str, Path]) -> Iterator[ControlPlane]:
    """A control plane for this test alone, whose components the test may kill, stop and restart (5 s, 0.5 GB)."""
    with (
        tempfile.TemporaryDirectory(prefix="orion-control-plane-") as folder,
        ControlPlane(Path(folder) / "plane", programs) as plane,
    ):
        yield plane


def client_for(kubeconfig: Path) -> client.ApiClient:
    """Return a client that acts as the kubeconfig's user."""
    settings = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=settings)
    settings.proxy = None  # the API server is on loopback
    return client.ApiClient(settings)


@pytest.fixture(scope="session")
def api(control_plane: Access) -> Iterator[client.ApiClient]:
    """The administrator's client, for `client.CoreV1Api(api)` and similar."""
    with client_for(control_plane.kubeconfig) as administrator:
        yield administrator


@pytest.fixture
def namespace(api: client.ApiClient) -> Iterator[str]:
    """A namespace for this test alone, with its service account. Its pods only go to this test's `fake_node`s."""
    core, name = client.CoreV1Api(api), f"test-{uuid.uuid4().hex[:10]}"
    annotations = {NODE_SELECTOR: f"{NODES_OF}={name}"}
    core.create_namespace({"metadata": {"name": name, "annotations": annotations}})
    selector = "metadata.name=default"
    eventually(lambda: core.list_namespaced_service_account(name, field_selector=selector).items)
    yield name
    core.delete_namespace(name)
    # No kubelet confirms the end of a pod on a fake node, so the namespace would never be deleted.
    core.delete_collection_namespaced_pod(name, grace_period_seconds=0)


@pytest.fixture
def kubeconfig_for(control_plane: Access, namespace: str, tmp_path: Path) -> Callable[..., Path]:
    """Makes a kubeconfig for any user: `kubeconfig_for("system:serviceaccount:NS:NAME", groups=[])`."""

    def make(user: str, groups: list[str] | None = None) -> Path:
        path = tmp_path / f"{uuid.uuid4().hex}.kubeconfig"
        return control_plane.kubeconfig_for(user, groups or [], path, namespace)

    return make


@pytest.fixture
def kubectl(programs: dict[str, Path], kubeconfig_for: Callable[..., Path]) -> Kubectl:
    """Runs kubectl as the administrator in this test's namespace; see `kubectl_as`."""
    return kubectl_as(programs["kubectl"], kubeconfig_for("orion-administrator", ["system:masters"]))


def kubectl_as(program: Path, default_kubeconfig: Path) -> Kubectl:
    """Return a function that runs kubectl as a kubeconfig's user and returns the output.

    `kubectl("apply", "--server-side", "-f", path)`, `kubectl("create", "-f", "-", given=manifest_text_or_mapping)`;
    `kubeconfig=` acts as another user, `seconds=` is the time limit. A refusal is a CalledProcessError whose notes
    hold kubectl's message.
    """

    def run(
        *arguments: str | Path,
        given: str | Mapping[str, Any] = "",
        kubeconfig: Path = default_kubeconfig,
        seconds: float = 60,
    ) -> str:
        text = given if isinstance(given, str) else json.dumps(given)
        command = [program, "--kubeconfig", kubeconfig, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds)
        if done.returncode != 0:
            failure = subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
            failure.add_note(done.stderr)
            raise failure
        return done.stdout

    return run


@pytest.fixture
def fake_node(api: client.ApiClient, namespace: str) -> Iterator[FakeNode]:
    """Makes a Ready Node for this test's pods, without a kubelet: `fake_node("a", {"orion.gpu/be": "4"})` -> its name.

    The node's name begins with the namespace's name, because nodes belong to no namespace. The scheduler binds pods to
    the node, and these pods stay Pending.
    """
    core, names = client.CoreV1Api(api), []

    def make(name: str, allocatable: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None) -> str:
        full = f"{namespace}-{name}"
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", **(allocatable or {})}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "no kubelet: a test's node"}
        core.create_node(
            {
                "metadata": {"name": full, "labels": {NODES_OF: namespace, **(labels or {})}},
                "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
            }
        )
        names.append(full)
        # The controllers remove the taint of a new node once they see it Ready.
        eventually(lambda: not core.read_node(full).spec.taints)
        return full

    yield make
    for name in names:
        core.delete_node(name)


@pytest.fixture
def cluster(api: client.ApiClient, namespace: str, fake_node: FakeNode) -> Iterator[Cluster]:
    """Nodes of this test that offer GPUs to claims, and pods with claims."""
    made = Cluster(api, namespace, fake_node)
    yield made
    made.remove()


@pytest.fixture(scope="session")
def operator(api: client.ApiClient, control_plane: Access) -> Iterator[ServingOperator]:
    """An operator of this worker that serves the agents of all tests, and writes nothing."""
    api_types.establish(api)
    with (
        tempfile.TemporaryDirectory(prefix="orion-operator-") as folder,
        serving_operator(api, control_plane.kubeconfig, Path(folder)) as made,
    ):
        yield made


@pytest.fixture
def view(api: client.ApiClient, namespace: str) -> ClusterView:
    """The objects that the agents of a test write."""
    api_types.establish(api)
    return ClusterView(api, namespace)


@pytest.fixture
def agents_kubeconfig(
    api: client.ApiClient, operator: ServingOperator, namespace: str, kubeconfig_for: Callable[..., Path]
) -> Path:
    """A kubeconfig of a user with exactly the rights of the chart's roles for agents."""
    user = f"system:serviceaccount:{namespace}:orion-agent"
    agent_process.grant_rights(api, operator, user)
    return kubeconfig_for(user)


@pytest.fixture
def world(api: client.ApiClient, namespace: str) -> World:
    """The objects of a namespace that the operator of a test manages."""
    api_types.establish(api)
    return World(api, namespace)


@pytest.fixture
def own_operator(
    world: World, api: client.ApiClient, kubeconfig_for: Callable[..., Path], tmp_path: Path
) -> Iterator[OperatorProcess]:
    """An operator for one test and its namespace, with exactly the chart's rights."""
    user = f"system:serviceaccount:{world.namespace}:orion-operator"
    grant_rights(api, user, world.namespace)
    options = ("--namespace", world.namespace, "--lease-namespace", world.namespace)
    with running_operator(kubeconfig_for(user), tmp_path, *options) as process:
        yield process


@pytest.fixture(scope="module")
def webhook(api: client.ApiClient, control_plane: Access) -> Iterator[RunningWebhook]:
    """The webhook of this worker."""
    api_types.establish(api)
    with tempfile.TemporaryDirectory(prefix="orion-webhook-") as folder:
        name = f"orion-test-{uuid.uuid4().hex[:10]}"
        with running_webhook.running(api, control_plane, Path(folder), name) as running:
            yield running


@pytest.fixture
def admitted(api: client.ApiClient, namespace: str, webhook: RunningWebhook) -> str:
    """A namespace whose pods the API server already sends to the webhook."""
    core = client.CoreV1Api(api)
    core.patch_namespace(namespace, {"metadata": {"labels": {LABEL: webhook.name}}})
    wait_until_admission_works(api, namespace)
    return namespace
