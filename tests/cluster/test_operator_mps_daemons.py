"""After a change of its DaemonSet, the operator replaces an MPS daemon's pod that waits for an image, but no other."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.cluster.audited_operator import audited_operator
from tests.cluster.audited_plane import AuditedPlane, granted
from tests.cluster.operator_process import ROLE, OperatorProcess
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

MPS_ROLE = ROLE.with_name("mps-role.yaml")
LABELS = {"app.kubernetes.io/name": "orion", "app.kubernetes.io/component": "mps"}
STARTED, WAITING = "started", "waiting"


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[AuditedPlane]:
    with audited_operator(tmp_path, MPS_ROLE) as plane:
        for name in (STARTED, WAITING):
            client.CoreV1Api(plane.api).create_node({"metadata": {"name": name}})
        yield plane


def daemon_set(image: str) -> dict[str, Any]:
    container = {"name": "mps-daemon", "image": image}
    tolerations = [{"operator": "Exists"}]  # no kubelet reports the nodes as ready
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container], "tolerations": tolerations}}
    spec = {"selector": {"matchLabels": LABELS}, "updateStrategy": {"type": "OnDelete"}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "orion-mps"}, "spec": spec}


def write_status(core: client.CoreV1Api, pod: str, state: dict[str, Any]) -> None:
    """Write a pod's status, as its kubelet would."""
    container = {"name": "mps-daemon", "image": "i", "imageID": "", "ready": "running" in state, "restartCount": 0}
    core.patch_namespaced_pod_status(pod, "default", {"status": {"containerStatuses": [{**container, "state": state}]}})


def test_a_pod_that_waits_for_an_image_is_replaced_and_a_running_pod_is_not(
    audited: AuditedPlane, tmp_path: Path
) -> None:
    core, apps = client.CoreV1Api(audited.api), client.AppsV1Api(audited.api)
    apps.create_namespaced_daemon_set("default", daemon_set("wrong.example.com/orion:1"))

    def pods() -> dict[str, Any]:
        found = core.list_namespaced_pod("default", label_selector="app.kubernetes.io/component=mps").items
        return {each.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
                .node_selector_terms[0].match_fields[0].values[0]: each for each in found}  # fmt: skip

    eventually(lambda: pods().keys() == {STARTED, WAITING})
    before = pods()
    write_status(core, before[STARTED].metadata.name, {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    write_status(
        core, before[WAITING].metadata.name, {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    )

    options = ("--lease-namespace", "default", "--mps-daemons", "orion-mps")
    process = OperatorProcess(audited.kubeconfig, tmp_path, *options, serves=False).start()
    try:
        process.wait_until_ready()
        eventually(lambda: ("", "pods", "list") in audited.asked())
        apps.patch_namespaced_daemon_set("orion-mps", "default", daemon_set("right.example.com/orion:1"))
        eventually(lambda: (now := pods().get(WAITING)) and now.metadata.uid != before[WAITING].metadata.uid)
        assert pods()[WAITING].spec.containers[0].image == "right.example.com/orion:1"
        assert pods()[STARTED].metadata.uid == before[STARTED].metadata.uid
        assert granted(MPS_ROLE) <= audited.asked()
        assert audited.refused() == []
    finally:
        assert process.end(signal.SIGTERM) == 0
