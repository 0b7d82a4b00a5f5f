"""Twenty pods a second while authorities change, during rollout and upgrade: no pod is refused, each pod is patched.

The webhooks, the API server and the rotation are real; the kubelet and the Service are stand-ins (webhook_fleet.py).
"""

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.operator.certificates.state import State
from orion.operator.webhook import manifests
from orion.operator.webhook.reviews import PATH
from orion.operator.webhook.serving import FINISH_S
from testbed.access import Access
from tests.cluster import api_types, running_webhook
from tests.cluster.certificates_process import SECRET, Certificates, grant_rights
from tests.cluster.conftest import Kubectl
from tests.cluster.running_webhook import LABEL, RunningWebhook
from tests.cluster.webhook_fleet import Background, Creations, Fleet, NewApiServer, StandInKubelet, fleet
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

RATE = 20.0
PATIENCE_S = 30  # the longest that an API server waits for a webhook: a busy machine refuses no pod
LATE = (0.2, 2.5)  # seconds until each webhook's stand-in kubelet writes the Secret


class Scene:
    """A namespace whose pods two webhooks admit, with certificates that the operator's command has made."""

    def __init__(self, api: client.ApiClient, namespace: str, certificates: Certificates, fleet: Fleet) -> None:
        self.api, self.namespace, self.certificates, self.fleet = api, namespace, certificates, fleet

    @contextlib.contextmanager
    def under_load(self) -> Iterator[Creations]:
        """Create pods and open connections during the block; at its end, none may have been refused."""
        newcomer = NewApiServer(self.api, self.namespace, self.fleet.service.port)
        with Background(newcomer.work, every=0.05), Creations(self.api, self.namespace, RATE) as creations:
            yield creations
        assert creations.refused == [], self.fleet.refusals()
        assert creations.unpatched == []
        assert newcomer.refused == []
        # Pods were created and connections made all the time; otherwise the test would show nothing.
        assert creations.made >= max(40, RATE * creations.seconds / 10)
        assert newcomer.handshakes > creations.seconds


@pytest.fixture
def scene(
    api: client.ApiClient,
    control_plane: Access,
    namespace: str,
    kubeconfig_for: Callable[..., Path],
    tmp_path: Path,
) -> Iterator[Scene]:
    api_types.establish(api)
    user = f"system:serviceaccount:{namespace}:orion-operator"
    grant_rights(api, user, namespace)
    running_webhook.allow(api, namespace)
    certificates = Certificates(api, namespace, kubeconfig_for(user), tmp_path)
    admission = client.AdmissionregistrationV1Api(api)
    with contextlib.ExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orion-webhook-"))) for _ in LATE]
        volumes = {folder / "volume": late for folder, late in zip(folders, LATE, strict=True)}
        for volume in volumes:
            volume.mkdir()
        stack.callback(running_webhook.disallow, api, namespace)
        stack.enter_context(Background(StandInKubelet(api, namespace, SECRET, volumes).work, every=0.1))
        webhooks = [
            RunningWebhook(
                control_plane,
                volume.parent,
                namespace,
                ("--certificates", str(volume), "--leave-seconds", "1", "--finish-seconds", str(FINISH_S)),
            )
            for volume in volumes
        ]
        with certificates.renewed_by_a_process():  # makes the Secret, without which no webhook's pod would start
            eventually(lambda: all((volume / "tls.crt").exists() for volume in volumes))
        behind = stack.enter_context(fleet(webhooks))
        reach = {"url": f"https://127.0.0.1:{behind.service.port}{PATH}"}
        made = manifests.webhook(reach, namespace, webhooks[0].selector)
        made["webhooks"][0]["timeoutSeconds"] = PATIENCE_S
        admission.create_mutating_webhook_configuration(made, field_manager="chart", field_validation="Strict")
        stack.callback(admission.delete_mutating_webhook_configuration, namespace)
        with certificates.renewed_by_a_process():
            eventually(certificates.at_rest)
        client.CoreV1Api(api).patch_namespace(namespace, {"metadata": {"labels": {LABEL: namespace}}})
        eventually(lambda: _is_admitted(api, namespace))
        yield Scene(api, namespace, certificates, behind)


def _is_admitted(api: client.ApiClient, namespace: str) -> bool:
    """Return whether the webhook refuses a pod that cannot work."""
    metadata = {"name": "probe", "annotations": {"orion/priority": "nonsense"}}
    spec = {"containers": [{"name": "main", "image": "localhost/none:1"}]}
    try:
        client.CoreV1Api(api).create_namespaced_pod(namespace, {"metadata": metadata, "spec": spec}, dry_run="All")
    except client.ApiException as refusal:
        return "must be hp or be" in str(refusal.body)
    return False


def fingerprints(state: State) -> set[str]:
    return {each.fingerprint for each in (state.leaf, state.authority) if each is not None}


def test_a_rotation_refuses_no_pod(scene: Scene) -> None:
    before = scene.certificates.state
    with scene.certificates.renewed_by_a_process(), scene.under_load() as creations:
        eventually(lambda: creations.made > 20)
        assert "a new authority is made" in scene.certificates.ask("rotate")
        eventually(scene.certificates.has_signed)
        eventually(scene.certificates.at_rest)
        made = creations.made
        eventually(lambda: creations.made > made + 20)
    after = scene.certificates.state
    assert fingerprints(before).isdisjoint(fingerprints(after))
    assert ": at rest" in scene.certificates.ask("show")


def test_a_deleted_secret_refuses_no_pod(scene: Scene) -> None:
    before = scene.certificates.state
    with scene.certificates.renewed_by_a_process(), scene.under_load() as creations:
        eventually(lambda: creations.made > 20)
        client.CoreV1Api(scene.api).delete_namespaced_secret(SECRET, scene.namespace)
        eventually(scene.certificates.has_signed)
        eventually(scene.certificates.at_rest)
    assert fingerprints(before).isdisjoint(fingerprints(scene.certificates.state))


def test_a_rollout_and_an_upgrade_during_a_rotation_refuse_no_pod(scene: Scene, kubectl: Kubectl) -> None:
    webhooks = scene.fleet.webhooks
    with scene.certificates.renewed_by_a_process(), scene.under_load():
        scene.certificates.ask("rotate")
        changed: dict[str, Any] = manifests.webhook(
            {"url": f"https://127.0.0.1:{scene.fleet.service.port}{PATH}"},
            scene.namespace,
            webhooks[0].selector,
        )
        # A new version of the chart, which contains no caBundle.
        changed["webhooks"][0]["timeoutSeconds"] = PATIENCE_S - 1
        kubectl("apply", "--server-side", "--force-conflicts", "--field-manager", "chart", "-f", "-", given=changed)
        for webhook in webhooks:
            webhook.arguments = (*webhook.arguments, "--log-level", "debug")
        scene.fleet.roll_out()
        eventually(scene.certificates.at_rest)
        scene.fleet.roll_out()
    found: Any = client.AdmissionregistrationV1Api(scene.api).read_mutating_webhook_configuration(scene.namespace)
    assert found.webhooks[0].timeout_seconds == PATIENCE_S - 1
    assert {each.poll() for each in scene.fleet.leaving} <= {None, 0}


def test_two_rotating_processes_that_are_killed_repeatedly_refuse_no_pod(scene: Scene) -> None:
    with scene.under_load():
        scene.certificates.ask("rotate")
        for reached in (scene.certificates.has_signed, scene.certificates.at_rest):
            for _ in range(2):  # kill the process during the wait, and start it again
                logged = len(scene.certificates.log.read_text())
                with scene.certificates.renewed_by_a_process(), scene.certificates.renewed_by_a_process():
                    eventually(functools.partial(scene.certificates.has_logged_more, logged))
            with scene.certificates.renewed_by_a_process(), scene.certificates.renewed_by_a_process():
                eventually(reached)
        with scene.certificates.renewed_by_a_process():
            eventually(scene.certificates.at_rest)
