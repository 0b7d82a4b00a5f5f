"""The certificates at a real API server: rights, expired certificates, a deleted Secret, a writer besides Orion."""

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.operator.certificates.api import ApiError
from orion.operator.certificates.connecting import connected
from orion.operator.certificates.issuing import new_authority, new_leaf, utc_now
from orion.operator.certificates.rotating import Look, Rotation
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State, write_state
from tests.cluster.certificates_process import SECRET, Certificates, grant_rights
from tests.cluster.conftest import Kubectl
from tests.waiting import DEADLINE

pytestmark = pytest.mark.cluster


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
    yield namespace
    admission.delete_mutating_webhook_configuration(namespace)


@pytest.fixture
def settings(namespace: str, configuration: str) -> CertificateSettings:
    now = timedelta(0)
    return CertificateSettings(namespace=namespace, configuration=configuration, spread=now, drop_retired_after=now)


async def look(kubeconfig: Path, settings: CertificateSettings) -> Look:
    async with connected(kubeconfig) as api:
        return await Rotation(api, settings).look()


async def whole_rotation(kubeconfig: Path, settings: CertificateSettings) -> None:
    """Run every step: make, write the caBundles, sign, replace the authority, sign again, drop the old one."""
    async with connected(kubeconfig) as api:
        rotation = Rotation(api, settings)
        await rotation.look()
        await rotation.rotate("a test asked for it")
        assert (await rotation.look()).why == "at rest"


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
    assert (await look(control_plane.kubeconfig, settings)).why == "at rest"
    assert certificates.at_rest()
    assert certificates.state.authority != authority


async def test_an_authority_stays_trusted_when_the_secret_is_deleted(
    api: client.ApiClient, namespace: str, settings: CertificateSettings, control_plane: Any, tmp_path: Path
) -> None:
    certificates = Certificates(api, namespace, control_plane.kubeconfig, tmp_path)
    patient = settings.model_copy(update={"spread": timedelta(hours=1)})
    await look(control_plane.kubeconfig, patient)
    before = certificates.state.authority
    client.CoreV1Api(api).delete_namespaced_secret(SECRET, namespace)
    assert "waiting until every API server has read it" in (await look(control_plane.kubeconfig, patient)).why
    after = certificates.state
    assert before is not None
    assert after.authority is not None
    assert after.leaf is None
    assert certificates.trusted() == [{before.fingerprint, after.authority.fingerprint}] * 2


async def test_two_processes_that_start_at_once_make_one_authority(
    api: client.ApiClient, namespace: str, settings: CertificateSettings, control_plane: Any, tmp_path: Path
) -> None:
    done = await asyncio.gather(*(look(control_plane.kubeconfig, settings) for _ in range(4)))
    assert {each.why for each in done} == {"at rest"}
    certificates = Certificates(api, namespace, control_plane.kubeconfig, tmp_path)
    assert certificates.at_rest()
    assert {each.state.authority for each in done if each.state} == {certificates.state.authority}


async def test_a_configuration_that_cert_manager_writes_is_left_alone(
    namespace: str, settings: CertificateSettings, control_plane: Any, kubectl: Kubectl
) -> None:
    kubectl("annotate", "mutatingwebhookconfiguration", namespace, "cert-manager.io/inject-ca-from=a/b")
    found = await look(control_plane.kubeconfig, settings)
    assert found.state is None
    assert "remove the annotation" in found.why
