"""The Job before an uninstall works with exactly the chart's rights, and names the pods that use claims."""

import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes import client

from orion.crds.claims import ClaimShape
from orion.crds.policy import Priority
from testbed import helm
from tests.cluster.audited_plane import audited_plane, granted
from tests.cluster.rights import bind
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

ROLE = helm.CHART / "files/dra/await-claims-role.yaml"
USER = "system:serviceaccount:default:orion-await-claims"
OF_CLAIMS = ("resource.k8s.io", "v1", "default", "resourceclaims")
SHAPE = ClaimShape(priority=Priority.BE, gpus={"main": 1})
GIVEN = {"request": "main", "driver": "orion.gpu", "pool": "node-1", "device": "gpu-1"}
POD = {
    "metadata": {"name": "train"},
    "spec": {
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        "schedulerName": "nobody",
    },
}


def await_claims(kubeconfig: Path) -> tuple[int, str]:
    """Run the command as the Job does; return its exit status and what it wrote."""
    command = [sys.executable, "-m", "orion.cli", "await-claims", "--kubeconfig", str(kubeconfig), "--seconds=0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_every_right_is_used_and_none_is_missing(tmp_path: Path) -> None:
    with audited_plane(USER, tmp_path) as plane:
        bind(plane.api, ROLE, USER, "default")
        objects = client.CustomObjectsApi(plane.api)
        spec = SHAPE.template()["spec"]["spec"]
        objects.create_namespaced_custom_object(*OF_CLAIMS, {"metadata": {"name": "mine"}, "spec": spec})
        status, said = await_claims(plane.kubeconfig)
        assert (status, "no pod uses a ResourceClaim of Orion" in said) == (0, True), said
        pod = client.CoreV1Api(plane.api).create_namespaced_pod("default", POD)
        reserved = [{"resource": "pods", "name": "train", "uid": pod.metadata.uid}]
        in_use = {"allocation": {"devices": {"results": [GIVEN]}}, "reservedFor": reserved}
        objects.patch_namespaced_custom_object_status(*OF_CLAIMS, "mine", {"status": in_use})
        status, said = await_claims(plane.kubeconfig)
        assert status == 1
        assert "cannot end without its driver: default/train; nothing has been removed" in said
        eventually(lambda: plane.asked() == granted(ROLE), what=f"{plane.asked()}")
        assert not plane.refused()
