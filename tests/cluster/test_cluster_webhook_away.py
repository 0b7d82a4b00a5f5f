"""Admission while the webhook or the API server is away: no pod gets a slot, and all other pods are created."""

import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.crds.annotations import PINNED_SHARE
from orion.operator.webhook.defaults import Defaults
from testbed.access import Access
from testbed.control_plane import ControlPlane
from tests.cluster import api_types, running_webhook
from tests.cluster.admitted_pods import HP, pod, refusal, share
from tests.cluster.conftest import client_for
from tests.cluster.running_webhook import LABEL
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

HOOK = Defaults().hook
ROOT = Path(__file__).parents[2]


def test_without_the_webhook_no_pod_gets_a_slot_and_other_pods_start(
    api: client.ApiClient, control_plane: Access, namespace: str, tmp_path: Path
) -> None:
    api_types.establish(api)
    core, name = client.CoreV1Api(api), f"orion-{namespace}"
    for policy, sentence in (("Fail", "failed calling webhook"), ("Ignore", "has not been through Orion's webhook")):
        folder = tmp_path / policy
        folder.mkdir()
        with running_webhook.running(api, control_plane, folder, name, policy) as running:
            core.patch_namespace(namespace, {"metadata": {"labels": {LABEL: name}}})
            eventually(lambda: "must be hp or be" in refusal(api, namespace, pod("x", "nonsense")))
            eventually(
                lambda: "only Orion's webhook" in refusal(api, namespace, pod("x", annotations={"orion.gpu/share": ""}))
            )
            assert running.stop() == 0
            assert sentence in refusal(api, namespace, pod("x", container=HP))
            assert (sentence if policy == "Fail" else "preload Orion's hook first") in refusal(api, namespace, forged())
            assert refusal(api, namespace, pod("x")) == ""
            running.start()
            assert refusal(api, namespace, pod("x", "hp")) == ""


def test_the_webhook_outlives_the_api_server(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    access = own_control_plane.access
    with client_for(access.kubeconfig) as api:
        api_types.establish(api)
        objects = client.CustomObjectsApi(api)
        with running_webhook.running(api, access, tmp_path, "orion-outlives") as running:
            client.CoreV1Api(api).patch_namespace("default", {"metadata": {"labels": {LABEL: running.name}}})
            own_control_plane.restart("kube-apiserver")
            own_control_plane.wait_until_ready()
            created = share("after", "be", selector={})
            eventually(lambda: _created(objects, created))
            eventually(lambda: 'orion_webhook_objects{kind="GPUShare"} 1.0' in running.read("metrics"))
            assert running.is_ready()
            made = eventually(lambda: _dry_run(api, pod("x", "be")))
            assert made["metadata"]["annotations"][PINNED_SHARE] == "after"


def forged() -> dict[str, Any]:
    """Return a pod that claims to have passed the webhook, and whose second LD_PRELOAD variable removes the hook."""
    preloads = [{"name": "LD_PRELOAD", "value": HOOK}, {"name": "LD_PRELOAD", "value": ""}]
    return pod("x", "hp", annotations={"orion.gpu/share": ""}, container={**HP, "env": preloads})


def _created(objects: client.CustomObjectsApi, plain: dict[str, Any]) -> bool:
    try:
        objects.create_namespaced_custom_object("orion.gpu", "v1alpha1", "default", "gpushares", plain)
    except Exception:  # any error of a restarting server
        return False
    return True


def _dry_run(api: client.ApiClient, plain: dict[str, Any]) -> dict[str, Any]:
    core = client.CoreV1Api(api)
    made = core.create_namespaced_pod("default", plain, dry_run="All", _preload_content=False)
    found: dict[str, Any] = json.loads(made.data)
    return found if PINNED_SHARE in found["metadata"]["annotations"] else {}
