"""The rotation at a real API server: its rights, a killed rotation, EndpointSlices, a fake cert-manager."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.operator.certificates.api import ApiError
from orion.operator.certificates.connecting import connected
from orion.operator.certificates.deciding import Phase
from orion.operator.certificates.issuing import Certificate, new_authority, new_leaf, utc_now
from orion.operator.certificates.replicas import Replicas
from orion.operator.certificates.rotating import Look, Rotation
from orion.operator.certificates.settings import CertificateSettings, Source
from orion.operator.certificates.state import State, write_state
from tests.cluster.certificates_process import SECRET, Certificates, grant_rights
from tests.cluster.conftest import Kubectl
from tests.waiting import DEADLINE, eventually

pytestmark = pytest.mark.cluster

UNUSED_ADDRESS = "192.0.2.7"  # an address reserved for documentation: nothing answers there


@pytest.fixture
def configuration(api: client.ApiClient, namespace: str) -> Iterator[str]:
    """A configuration of two webhooks that the API server never calls."""
    admission = client.AdmissionregistrationV1Api(api)
    webhooks = [
        {
            "name": f"{name}.orion.test",
            "clientConfig": {"service": {"namespace": namespace, "name": "orion-webhook"}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
        }
        for name in ("first", "second")
    ]
    admission.create_mutating_webhook_configuration({"metadata": {"name": namespace}, "webhooks": webhooks})
    yield f"MutatingWebhookConfiguration/{namespace}"
    admission.delete_mutating_webhook_configuration(namespace)


@pytest.fixture
def settings(namespace: str, configuration: str) -> CertificateSettings:
    now = timedelta(0)
    return CertificateSettings(namespace=namespace, configurations=(configuration,), spread=now, settle=now)


async def look(kubeconfig: Path, settings: CertificateSettings) -> Look:
    async with connected(kubeconfig) as api:
        return await Rotation(api, settings).look()


async def whole_rotation(kubeconfig: Path, settings: CertificateSettings) -> None:
    """Run every step of a rotation: make, spread, replace, check the replicas, remove."""

    async def shown(leaf: Certificate) -> str:
        assert "no replica" in await replicas.without(leaf)  # `without` reads the EndpointSlices
        return ""

    async with connected(kubeconfig) as api:
        replicas = Replicas(api, settings)
        rotation = Rotation(api, settings, without=shown)
        await rotation.look()
        await rotation.rotate("a test asked for it")
        assert (await rotation.look()).phase is Phase.AT_REST


async def test_the_shipped_rights_are_enough(
    api: client.ApiClient, namespace: str, settings: CertificateSettings, kubeconfig_for: Callable[..., Path]
) -> None:
    user = f"system:serviceaccount:{namespace}:orion-operator"
    grant_rights(api, user, namespace)
    await until_allowed(kubeconfig_for(user), settings)


async def until_allowed(kubeconfig: Path, settings: CertificateSettings) -> None:
    """Run a whole rotation; RBAC applies new roles with a delay."""
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            return await whole_rotation(kubeconfig, settings)
        except ApiError as error:
            if error.status != 403 or time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


RIGHTS = [
    ("mutatingwebhookconfigurations", "get"),
    ("mutatingwebhookconfigurations", "update"),
    ("secrets", "create"),
    ("secrets", "get"),
    ("secrets", "update"),
    ("endpointslices", "list"),
]


@pytest.mark.parametrize(("resource", "verb"), RIGHTS)
async def test_every_shipped_right_is_used(
    api: client.ApiClient,
    namespace: str,
    settings: CertificateSettings,
    kubeconfig_for: Callable[..., Path],
    resource: str,
    verb: str,
) -> None:
    seen: list[tuple[str, str]] = []

    def without(role: dict[str, Any]) -> None:
        for rule in role["rules"]:
            seen.extend((each, one) for each in rule["resources"] for one in rule["verbs"])
            if resource in rule["resources"] and verb in rule["verbs"]:
                rule["verbs"].remove(verb)
        role["rules"] = [rule for rule in role["rules"] if rule["verbs"]] or [
            {"apiGroups": [""], "resources": ["none"], "verbs": ["get"]}
        ]

    lacking, complete = (f"system:serviceaccount:{namespace}:{name}" for name in ("lacking", "complete"))
    grant_rights(api, lacking, namespace, without)
    grant_rights(api, complete, namespace)
    await until_allowed(kubeconfig_for(complete), settings)  # by now RBAC also applies the roles of the other user
    if (resource, verb) == ("secrets", "create"):
        client.CoreV1Api(api).delete_namespaced_secret(SECRET, namespace)
    with pytest.raises(ApiError, match=f'cannot {verb} resource "{resource}"') as refusal:
        await whole_rotation(kubeconfig_for(lacking), settings)
    assert refusal.value.status == 403
    assert sorted(seen) == sorted(RIGHTS)


async def test_expired_certificates_are_replaced_in_one_pass(
    api: client.ApiClient, namespace: str, settings: CertificateSettings, control_plane: Any, tmp_path: Path
) -> None:
    day = timedelta(days=1)
    past = utc_now() - 100 * day
    authority = new_authority(past, day, day)
    state = State(new_leaf(authority, settings.leaf_names, past, day, day), authority)
    body = {"metadata": {"name": SECRET}, "type": "kubernetes.io/tls", "data": write_state(state)}
    client.CoreV1Api(api).create_namespaced_secret(namespace, body)
    certificates = Certificates(api, namespace, control_plane.kubeconfig, tmp_path)
    assert certificates.phase is Phase.BROKEN
    assert (await look(control_plane.kubeconfig, settings)).phase is Phase.AT_REST
    assert certificates.at_rest()
    assert certificates.state.authority != authority


async def test_a_replica_that_does_not_answer_keeps_the_retired_authority(
    api: client.ApiClient, namespace: str, settings: CertificateSettings, control_plane: Any
) -> None:
    endpoint = {"addresses": [UNUSED_ADDRESS], "conditions": {"ready": True}}
    body = {
        "metadata": {"name": "first", "labels": {"kubernetes.io/service-name": settings.service}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": 9443}],
        "endpoints": [endpoint],
    }
    client.DiscoveryV1Api(api).create_namespaced_endpoint_slice(namespace, body)
    async with connected(control_plane.kubeconfig) as server:
        rotation = Rotation(server, settings)
        await rotation.look()
        await rotation.rotate("a test asked for it")
        found = await rotation.look()
    assert found.phase is Phase.EXCHANGED
    assert found.why == f"the retired authority is kept: {UNUSED_ADDRESS}:9443 does not answer"


async def test_a_fake_cert_manager_is_found_and_left_alone(
    api: client.ApiClient, namespace: str, settings: CertificateSettings, control_plane: Any, kubectl: Kubectl
) -> None:
    """A fake cert-manager: only the definition of its kind `Certificate` exists."""
    asked = settings.model_copy(update={"source": Source.CERT_MANAGER, "secret": f"fake-{uuid.uuid4().hex[:8]}"})
    before = await look(control_plane.kubeconfig, asked)
    assert before.phase is Phase.AT_REST  # cert-manager is not installed, so the operator makes the certificates
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    fake = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "certificates.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"plural": "certificates", "singular": "certificate", "kind": "Certificate"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    kubectl("apply", "--server-side", "-f", "-", given=fake)
    try:
        eventually(lambda: "certificates" in kubectl("api-resources", "--api-group", "cert-manager.io", "-o", "name"))
        out = await look(control_plane.kubeconfig, asked)
        assert out.phase is None
        assert "the rotation does nothing" in out.why
        kubectl("annotate", "mutatingwebhookconfiguration", namespace, "cert-manager.io/inject-ca-from=a/b")
        assert "remove the annotation" in (await look(control_plane.kubeconfig, settings)).why
    finally:
        kubectl("delete", "crd/certificates.cert-manager.io")
