"""With the operator's own token, nobody can widen what Orion's webhook sees: at a real API server."""

import base64
import copy
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from orion.operator.certificates.bundles import FOLDER, Configuration
from orion.operator.certificates.connecting import connected
from orion.operator.certificates.issuing import utc_now
from orion.operator.certificates.rotating import Rotation
from orion.operator.certificates.settings import CertificateSettings
from testbed.access import Access
from tests.cluster import certificates_process
from tests.cluster.conftest import client_for
from tests.cluster.refusals import refusal
from tests.operator.certificate_samples import made
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

FILES = Path(__file__).parents[2] / "charts" / "orion" / "files"
ACCOUNT = "orion-operator"
OWNER = {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "00000000-0000-0000-0000-000000000000"}
ALL = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
SECRETS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]}

Change = Callable[[dict[str, Any]], object]
""" Changes a webhook configuration in place. """


def bundle() -> str:
    """Return a new caBundle."""
    return base64.b64encode(made(utc_now())[0].pem).decode()


@pytest.fixture
def policy(api: client.ApiClient, namespace: str) -> Iterator[str]:
    """The chart's policy, for the configuration that is named after the namespace; its name."""
    definition, binding = yaml.safe_load_all((FILES / "webhook-policy.yaml").read_text())
    name = f"{definition['metadata']['name']}-{namespace}"
    (rule,) = definition["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resourceNames"] == [CertificateSettings().configuration]
    rule["resourceNames"] = [namespace]
    definition["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = name
    admission = client.AdmissionregistrationV1Api(api)
    admission.create_validating_admission_policy(definition)
    admission.create_validating_admission_policy_binding(binding)
    yield name
    admission.delete_validating_admission_policy_binding(name)
    admission.delete_validating_admission_policy(name)


@pytest.fixture
def configuration(api: client.ApiClient, namespace: str) -> Iterator[str]:
    """The chart's webhook configuration, which the API server calls for no namespace; its name."""
    admission = client.AdmissionregistrationV1Api(api)
    body = yaml.safe_load((FILES / "webhook.yaml").read_text())
    body["metadata"] |= {"name": namespace, "annotations": {"ours": "1"}}
    body["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"orion-test/none": namespace}}
    admission.create_mutating_webhook_configuration(body)
    yield namespace
    admission.delete_mutating_webhook_configuration(namespace)


@pytest.fixture
def operators_token(
    api: client.ApiClient, namespace: str, configuration: str, control_plane: Access, tmp_path: Path
) -> Path:
    """A kubeconfig with a token of the operator's service account, which has the rights of the chart's role."""
    core = client.CoreV1Api(api)
    core.create_namespaced_service_account(namespace, {"metadata": {"name": ACCOUNT}})
    certificates_process.grant_rights(api, f"system:serviceaccount:{namespace}:{ACCOUNT}", namespace)
    wanted: dict[str, Any] = {"spec": {"audiences": []}}
    token = core.create_namespaced_service_account_token(ACCOUNT, namespace, wanted).status.token
    return control_plane.kubeconfig_with(token, tmp_path / "operator.kubeconfig")


@pytest.fixture
def operator(operators_token: Path, configuration: str, namespace: str) -> Iterator[client.ApiClient]:
    """A client with that token, once the API server applies its rights."""
    with client_for(operators_token) as taken:
        read = client.AdmissionregistrationV1Api(taken).read_mutating_webhook_configuration
        eventually(lambda: refusal(read, configuration) == "")
        absent = client.CoreV1Api(taken).read_namespaced_secret
        eventually(lambda: "not found" in refusal(absent, CertificateSettings().secret, namespace))
        yield taken


def written(by: client.ApiClient, name: str, change: Change, dry_run: bool = True) -> str:
    """Change the stored configuration, write it, and return the sentence of a refusal, or nothing."""
    admission = client.AdmissionregistrationV1Api(by)
    body: dict[str, Any] = by.sanitize_for_serialization(admission.read_mutating_webhook_configuration(name))
    change(body)
    options = {"dry_run": "All"} if dry_run else {}
    return refusal(admission.replace_mutating_webhook_configuration, name, body, **options)


def hook(change: Change) -> Change:
    """Return a change of the configuration's only webhook."""
    return lambda body: change(body["webhooks"][0])


def client_of(change: Change) -> Change:
    """Return a change of the webhook's clientConfig."""
    return hook(lambda webhook: change(webhook["clientConfig"]))


def twice(body: dict[str, Any]) -> None:
    other = copy.deepcopy(body["webhooks"][0]) | {"name": "second.webhook.orion.gpu", "rules": [ALL]}
    body["webhooks"].append(other)


def to_url(target: dict[str, Any]) -> None:
    target.pop("service")
    target["url"] = "https://attacker.example.com/"


EVERYTHING_ELSE: dict[str, Change] = {
    "rules": hook(lambda webhook: webhook["rules"].append(SECRETS)),
    "resources of a rule": hook(lambda webhook: webhook["rules"][0]["resources"].append("secrets")),
    "operations of a rule": hook(lambda webhook: webhook["rules"][0]["operations"].append("UPDATE")),
    "scope of a rule": hook(lambda webhook: webhook["rules"][0].update(scope="Namespaced")),
    "all rules": hook(lambda webhook: webhook.update(rules=[ALL])),
    "namespaceSelector": hook(lambda webhook: webhook.update(namespaceSelector={})),
    "no namespaceSelector": hook(lambda webhook: webhook.pop("namespaceSelector")),
    "objectSelector": hook(lambda webhook: webhook.update(objectSelector={"matchLabels": {"a": "b"}})),
    "matchConditions": hook(lambda webhook: webhook["matchConditions"][0].update(expression="true")),
    "no matchConditions": hook(lambda webhook: webhook.pop("matchConditions")),
    "matchPolicy": hook(lambda webhook: webhook.update(matchPolicy="Exact")),
    "failurePolicy": hook(lambda webhook: webhook.update(failurePolicy="Ignore")),
    "reinvocationPolicy": hook(lambda webhook: webhook.update(reinvocationPolicy="Never")),
    "sideEffects": hook(lambda webhook: webhook.update(sideEffects="NoneOnDryRun")),
    "timeoutSeconds": hook(lambda webhook: webhook.update(timeoutSeconds=30)),
    "name": hook(lambda webhook: webhook.update(name="other.webhook.orion.gpu")),
    "service": client_of(lambda target: target["service"].update(name="theirs")),
    "namespace of the service": client_of(lambda target: target["service"].update(namespace="theirs")),
    "path of the service": client_of(lambda target: target["service"].update(path="/other")),
    "port of the service": client_of(lambda target: target["service"].update(port=444)),
    "url": client_of(to_url),
    "a second webhook": twice,
    "no webhook": lambda body: body.update(webhooks=[]),
    "label": lambda body: body["metadata"]["labels"].update(a="b"),
    "annotation": lambda body: body["metadata"]["annotations"].update({"cert-manager.io/inject-ca-from": "a/b"}),
    "no annotation": lambda body: body["metadata"].pop("annotations"),
    "owner": lambda body: body["metadata"].update(ownerReferences=[OWNER]),  # the garbage collector would delete it
    "finalizer": lambda body: body["metadata"].update(finalizers=["orion.gpu/kept"]),
}


def test_the_operator_can_change_only_the_ca_bundle_of_the_webhook(
    operator: client.ApiClient, policy: str, configuration: str
) -> None:
    refused = "only caBundle of Orion's webhook configuration can change"
    eventually(lambda: refused in written(operator, configuration, EVERYTHING_ELSE["rules"]))
    accepted = [
        what for what, change in EVERYTHING_ELSE.items() if refused not in written(operator, configuration, change)
    ]
    assert accepted == []
    new = bundle()
    assert written(operator, configuration, client_of(lambda target: target.update(caBundle=new)), dry_run=False) == ""
    assert written(operator, configuration, client_of(lambda target: target.update(caBundle=bundle()))) == ""
    assert written(operator, configuration, client_of(lambda target: target.pop("caBundle"))) == ""
    both = [EVERYTHING_ELSE["rules"], client_of(lambda target: target.update(caBundle=bundle()))]
    assert refused in written(operator, configuration, lambda body: [change(body) for change in both])
    assert refused in written(operator, configuration, EVERYTHING_ELSE["url"])


def test_whoever_may_create_webhook_configurations_may_change_everything(
    api: client.ApiClient, operator: client.ApiClient, policy: str, configuration: str
) -> None:
    eventually(lambda: written(operator, configuration, EVERYTHING_ELSE["rules"]))  # the policy is in force
    assert {what: written(api, configuration, change) for what, change in EVERYTHING_ELSE.items()} == dict.fromkeys(
        EVERYTHING_ELSE, ""
    )


def test_the_operator_can_neither_replace_the_webhook_nor_the_policy_that_binds_it(
    api: client.ApiClient, operator: client.ApiClient, policy: str, configuration: str
) -> None:
    admission, rights = client.AdmissionregistrationV1Api(operator), client.RbacAuthorizationV1Api(operator)
    stored = client.AdmissionregistrationV1Api(api).read_validating_admission_policy(policy)
    body = {"metadata": {"name": f"{configuration}-own"}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    requests: list[tuple[Callable[..., object], tuple[Any, ...]]] = [
        (admission.delete_mutating_webhook_configuration, (configuration,)),
        (admission.delete_collection_mutating_webhook_configuration, ()),
        (admission.create_mutating_webhook_configuration, (body,)),
        (admission.patch_mutating_webhook_configuration, (configuration, {"webhooks": []})),
        (admission.create_validating_webhook_configuration, (body,)),
        (admission.patch_validating_admission_policy, (policy, {"spec": {"failurePolicy": "Ignore"}})),
        (admission.replace_validating_admission_policy, (policy, stored)),
        (admission.delete_validating_admission_policy, (policy,)),
        (admission.patch_validating_admission_policy_binding, (policy, {"spec": {"validationActions": ["Warn"]}})),
        (admission.delete_validating_admission_policy_binding, (policy,)),
        (rights.create_cluster_role_binding, (body | {"roleRef": role},)),
        (rights.patch_cluster_role, (f"orion-certificates-system-serviceaccount-{configuration}-{ACCOUNT}", {})),
    ]
    allowed = [call.__name__ for call, given in requests if "is forbidden" not in refusal(call, *given)]
    assert allowed == []


async def test_the_operator_makes_and_changes_the_authority_under_the_policy(
    operator: client.ApiClient, operators_token: Path, policy: str, configuration: str, namespace: str
) -> None:
    eventually(lambda: written(operator, configuration, EVERYTHING_ELSE["rules"]))  # the policy is in force
    now = timedelta(0)
    settings = CertificateSettings(namespace=namespace, configuration=configuration, spread=now, drop_retired_after=now)
    async with connected(operators_token) as server:
        rotation = Rotation(server, settings)
        assert (await rotation.look()).why == "at rest"
        await rotation.rotate("a test asked for it")
        assert (await rotation.look()).why == "at rest"
        emptied = client_of(lambda target: target.pop("caBundle"))
        assert written(operator, configuration, emptied, dry_run=False) == ""
        assert (await rotation.look()).why == "at rest"
        (bundle,) = Configuration(configuration, await server.get(f"{FOLDER}/{configuration}")).bundles
    assert len(bundle) == 1
