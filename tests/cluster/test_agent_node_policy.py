"""The policy that restricts agents to the GPUs of their node, at a real API server, with real tokens of pods."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from testbed.access import Access
from tests.cluster.agent_process import GROUP, ROOT, VERSION, ClusterView, grant_rights, machine, until_written
from tests.cluster.conftest import FakeNode, client_for
from tests.cluster.refusals import refusal
from tests.cluster.serving_operator import ServingOperator
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

POLICY = ROOT / "charts" / "orion" / "files" / "agent-policy.yaml"
AGENT = "orion-agent"

Tokens = Callable[[str], Path]


@pytest.fixture
def gpu(view: ClusterView) -> Iterator[str]:
    name = f"GPU-{uuid.uuid4()}"
    yield name
    view.delete(name)


@pytest.fixture
def token_of(
    api: client.ApiClient, operator: ServingOperator, namespace: str, control_plane: Access, tmp_path: Path
) -> Tokens:
    """Makes a kubeconfig with the token of an agent's pod on a node; for the node "", the token belongs to no pod."""
    core = client.CoreV1Api(api)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": AGENT}})
    grant_rights(api, operator, f"system:serviceaccount:{namespace}:{AGENT}")

    def make(node: str) -> Path:
        wanted: dict[str, Any] = {"expirationSeconds": 3600}
        if node:
            spec = {"nodeName": node, "serviceAccountName": AGENT, "containers": [{"name": "agent", "image": "none"}]}
            pod = core.create_namespaced_pod(namespace, {"metadata": {"generateName": "agent-"}, "spec": spec})
            wanted["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name}
        made = core.create_namespaced_service_account_token(AGENT, namespace, {"spec": wanted})
        return control_plane.kubeconfig_with(made.status.token, tmp_path / f"{uuid.uuid4().hex}.kubeconfig")

    return make


@pytest.fixture
def policy(api: client.ApiClient, view: ClusterView, token_of: Tokens) -> Iterator[None]:
    """The chart's policy, for the agents of this test's namespace, because other tests share the API server."""
    admission = client.AdmissionregistrationV1Api(api)
    definition, binding = yaml.safe_load_all(POLICY.read_text())
    name = f"{definition['metadata']['name']}-{view.namespace}"
    ours = f"request.userInfo.username.startsWith('system:serviceaccount:{view.namespace}:')"
    definition["spec"]["matchConditions"].append({"name": "of-this-test", "expression": ours})
    definition["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = name
    admission.create_validating_admission_policy(definition)
    admission.create_validating_admission_policy_binding(binding)
    checked = f"GPU-{uuid.uuid4()}"
    create(api, checked)
    with client_for(token_of("")) as without_node:
        eventually(lambda: "names no node" in refusal(write, without_node, checked, health="Healthy"))
    yield
    view.delete(checked)
    admission.delete_validating_admission_policy_binding(name)
    admission.delete_validating_admission_policy(name)


def create(api: client.ApiClient, gpu: str, **spec: Any) -> None:
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GPUDevice", "metadata": {"name": gpu.lower()}, "spec": spec}
    client.CustomObjectsApi(api).create_cluster_custom_object(GROUP, VERSION, "gpudevices", body)


def write(api: client.ApiClient, gpu: str, **status: Any) -> None:
    objects = client.CustomObjectsApi(api)
    objects.patch_cluster_custom_object_status(GROUP, VERSION, "gpudevices", gpu.lower(), {"status": status})


@pytest.mark.usefixtures("policy")
def test_an_agent_writes_the_gpus_of_its_own_node(
    api: client.ApiClient, fake_node: FakeNode, token_of: Tokens, gpu: str
) -> None:
    here, there = fake_node("a"), fake_node("b")
    with contextlib.ExitStack() as stack:
        ours, theirs = (stack.enter_context(client_for(token_of(node))) for node in (here, there))
        assert "only people may change their spec" in refusal(create, ours, gpu, cordon=True)
        assert "only people may change their spec" in refusal(create, ours, gpu, mode="mps")
        create(ours, gpu)
        assert f"this GPU is of node {there}" in refusal(write, ours, gpu, node=there)
        write(ours, gpu, node=here, health="Healthy")
        write(ours, gpu, health="Unhealthy")
        for status in ({"node": there}, {"health": "Unknown"}, {"node": here, "health": "Healthy"}):
            reported = refusal(write, theirs, gpu, **status)
            assert (
                f"an agent of node {there} may write only GPUs of that node, but this GPU is of node {here}" in reported
            )
        write(ours, gpu, health="Unknown")
        write(theirs, gpu, node=there, health="Healthy")
        assert f"is of node {there}" in refusal(write, ours, gpu, node=here)
        with client_for(token_of("")) as without_node:
            assert "names no node" in refusal(write, without_node, gpu, health="Healthy")
        write(api, gpu, node=here)  # an administrator may write any device


@pytest.mark.usefixtures("policy")
def test_users_who_may_release_gpus_can_only_set_the_health_to_unknown(
    api: client.ApiClient, namespace: str, token_of: Tokens, gpu: str
) -> None:
    create(api, gpu)
    write(api, gpu, node="gone", health="Healthy")
    rights, name = client.RbacAuthorizationV1Api(api), f"release-{namespace}"
    rule = {"apiGroups": [GROUP], "resources": ["gpudevices"], "verbs": ["release"]}
    with client_for(token_of("")) as without_node:
        assert "names no node" in refusal(write, without_node, gpu, health="Unknown")
        rights.create_cluster_role({"metadata": {"name": name}, "rules": [rule]})
        reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        subjects = [{"kind": "ServiceAccount", "name": AGENT, "namespace": namespace}]
        rights.create_cluster_role_binding({"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})
        eventually(lambda: refusal(write, without_node, gpu, health="Unknown") == "")
        for status in ({"health": "Healthy"}, {"node": "here", "health": "Unknown"}):
            assert "names no node" in refusal(write, without_node, gpu, **status)
    rights.delete_cluster_role_binding(name)
    rights.delete_cluster_role(name)


@pytest.mark.usefixtures("policy")
def test_an_agent_does_its_work_under_the_policy(
    c_build: Path, operator: ServingOperator, fake_node: FakeNode, token_of: Tokens, view: ClusterView
) -> None:
    node = fake_node("a")
    with machine(c_build, operator, node, token_of(node), view.namespace, view, gpus=1) as made:
        made.start_agent()
        until_written(view, made)
        assert view.condition(made.uuids[0], "Ready") == ("True", "Advertised")
        made.simulated("lose", "0")
        eventually(lambda: view.status(made.uuids[0])["health"] == "Unhealthy", what=made.agent_log())
