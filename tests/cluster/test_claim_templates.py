"""Where ResourceClaims give slots, the operator needs exactly the rights that the chart ships besides."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from orion.crds.claims import CLAIM, SHAPE, TEMPLATE_LABEL, ClaimShape
from orion.crds.policy import Priority
from orion.dra_driver import slices
from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU, Snapshot
from tests.cluster.audited_operator import audited_operator
from tests.cluster.audited_plane import AuditedPlane, granted
from tests.cluster.operator_process import ROLE, OperatorProcess
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

TEMPLATES = ROLE.parent / "dra" / "operator-role.yaml"
CLAIM_TEMPLATES: dict[str, str] = {"group": "resource.k8s.io", "version": "v1", "plural": "resourceclaimtemplates"}
ASKED_BY_POLICY = {("resource.k8s.io", "resourceclaimtemplates", "anyamount")}
TOO_COSTLY = f"{'[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(x, ' * 8}true{')' * 8}"
""" A CEL expression whose cost the API server estimates as more than it permits. """
SHAPES = ClaimShape(priority=Priority.BE, gpus={"main": 1}, memory_bytes=1 << 30)
OF_A_DELETED_SHARE = ClaimShape(priority=Priority.BE, gpus={"main": 1}, memory_bytes=2 << 30)


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[AuditedPlane]:
    with audited_operator(tmp_path, TEMPLATES) as plane:
        yield plane


class Templates:
    """The templates of the namespace `default`."""

    def __init__(self, api: client.ApiClient) -> None:
        self._objects = client.CustomObjectsApi(api)

    def uids(self) -> dict[str, str]:
        """Return the uid of each template, by name."""
        found: Any = self._objects.list_namespaced_custom_object(**CLAIM_TEMPLATES, namespace="default")
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found["items"]}

    def create(self, name: str, labels: dict[str, str]) -> None:
        body = SHAPES.template()
        body["metadata"] = {"name": name, "labels": labels}
        self._objects.create_namespaced_custom_object(**CLAIM_TEMPLATES, namespace="default", body=body)

    def delete(self, name: str) -> None:
        self._objects.delete_namespaced_custom_object(**CLAIM_TEMPLATES, namespace="default", name=name)


def pod(name: str = "p", shape: ClaimShape = SHAPES, share: str = "") -> dict[str, Any]:
    """A pod as the webhook admits it. No scheduler looks at it; the test writes what one would write."""
    marks = {"orion/priority": "be", "orion.gpu/share": share, SHAPE: shape.as_json()}
    claims = [{"name": CLAIM, "request": "main"}]
    return {
        "metadata": {"name": name, "annotations": marks, "labels": {"orion.gpu/priority": "be"}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "none", "resources": {"claims": claims}}],
            "resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": shape.template_name}],
        },
    }


def offer(api: client.ApiClient, node: str, cordoned: bool) -> None:
    """Make a node that offers a GPU."""
    gpu = AdvertisedGPU(f"GPU-{node}", memory_bytes=80 << 30, slots=(Slot(f"GPU-{node}", "be", 0),), cordoned=cordoned)
    uid = client.CoreV1Api(api).create_node({"metadata": {"name": node}}).metadata.uid
    body = slices.resource_slice(node, uid, 1, slices.devices(Snapshot({gpu.uuid: gpu}), 0))
    objects = client.CustomObjectsApi(api)
    objects.create_cluster_custom_object("resource.k8s.io", "v1", "resourceslices", body)


def mark_unschedulable(core: client.CoreV1Api, message: str) -> None:
    """Write what the scheduler writes."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    core.patch_namespaced_pod_status("p", "default", {"status": {"conditions": [condition]}})


def notes(core: client.CoreV1Api) -> list[str]:
    return [event.message or "" for event in core.list_namespaced_event("default").items]


def refused(core: client.CoreV1Api, selector: str) -> str:
    """Create a pod whose claim has a selector; return what its Event says about its template."""
    name = f"refused-{len(selector)}"
    core.create_namespaced_pod("default", pod(name, SHAPES.model_copy(update={"selector": selector})))

    def said() -> str:
        events = core.list_namespaced_event("default", field_selector=f"involvedObject.name={name}").items
        return next((event.message for event in events if event.reason == "ClaimTemplateRefused"), "")

    why = eventually(said, f"an Event about {name}")
    core.delete_namespaced_pod(name, "default", grace_period_seconds=0)
    return why


def test_a_template_lives_as_long_as_pods_name_it(audited: AuditedPlane, tmp_path: Path) -> None:
    templates, core = Templates(audited.api), client.CoreV1Api(audited.api)
    options = ("--lease-namespace", "default", "--allocation", "dra", "--resync-seconds", "2")
    process = OperatorProcess(audited.kubeconfig, tmp_path, *options)
    templates.create("orion-be-unused", {TEMPLATE_LABEL: "true"})
    templates.create("of-somebody", {})
    process.start()
    try:
        process.wait_until_ready()
        core.create_namespaced_pod("default", pod())
        eventually(lambda: SHAPES.template_name in templates.uids(), what="the template")
        core.create_namespaced_pod(
            "default", pod("late", OF_A_DELETED_SHARE, share="deleted-before-the-template-was-made")
        )
        eventually(lambda: OF_A_DELETED_SHARE.template_name in templates.uids(), what="the shape is in the pod")
        core.delete_namespaced_pod("late", "default", grace_period_seconds=0)
        assert "Syntax error" in refused(core, "device.attributes[")
        assert "too complex" in refused(core, TOO_COSTLY)
        offer(audited.api, "node-1", cordoned=True)
        mark_unschedulable(core, "0/1 nodes are available: 1 cannot allocate all claims.")
        eventually(lambda: [note for note in notes(core) if "it has the taint orion.gpu/cordoned" in note])
        offer(audited.api, "node-2", cordoned=False)
        mark_unschedulable(core, "0/2 nodes are available: 2 cannot allocate all claims.")
        eventually(lambda: ("", "nodes", "patch") in audited.asked(), what="a changed label, for the scheduler")
        made = templates.uids()[SHAPES.template_name]
        templates.delete(SHAPES.template_name)
        eventually(lambda: templates.uids().get(SHAPES.template_name, made) != made, what="the template is back")
        eventually(lambda: "orion-be-unused" not in templates.uids(), what="the unused template is gone")
        assert SHAPES.template_name in templates.uids()
        core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
        eventually(lambda: list(templates.uids()) == ["of-somebody"], what="only the template of somebody else is left")
    finally:
        assert process.end(signal.SIGTERM) == 0
    used = {right for right in audited.asked() if right[0] == "resource.k8s.io"}
    assert used | ASKED_BY_POLICY == granted(TEMPLATES)
    assert audited.refused() == []
