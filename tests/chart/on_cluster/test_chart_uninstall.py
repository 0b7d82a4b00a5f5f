"""Uninstalls whose cleanup fails: each ends in time and reports the reason; a person cleans up afterwards.

Such an uninstall removes all objects of the cleanup itself, except if the API server rejects the cleanup's Job. Each
test starts and ends with a cluster without Orion.
"""

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orion.cli.main import main
from testbed.access import Access
from testbed.errors import Failed
from testbed.node import Node
from testbed.release import Release
from tests.chart.on_cluster.remains import left, marks_of_nodes, nothing_is_claimed, nothing_is_left
from tests.cluster.conftest import Kubectl
from tests.waiting import eventually

pytestmark = pytest.mark.node

DEADLINE = 12
SIMULATED: dict[str, Any] = {
    "simulatedGPUs": 1,
    "uninstall.deadlineSeconds": DEADLINE,
    "webhook.terminationGracePeriodSeconds": 30,
}
MORE_SECONDS = 90.0
""" Helm's work before and after the Job takes some 5 s. """
CLEANUP = "system:serviceaccount:orion-system:orion-cleanup"
POLICY, QUOTA = "nobody-cleans-nodes", "no-jobs"
DOCS = Path(__file__).parents[3] / "docs" / "uninstalling.md"


@pytest.fixture(autouse=True)
def cleared(release: Release, kubectl: Kubectl) -> Iterator[None]:
    """Remove everything that the test created, even if it failed."""
    yield
    kubectl("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", POLICY, "--ignore-not-found")
    release.uninstall(wanted=False)
    definitions = [f"{kind}.orion.gpu" for kind in ("gpushares", "gpudevices", "gpuprofiles")]
    kubectl("delete", "crd", *definitions, "--ignore-not-found")
    kubectl("delete", "namespace", release.namespace, "--ignore-not-found", "--timeout=60s", seconds=90)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"image.tag": "absent"}, id="image"),
        pytest.param({"operator.nodeSelector.absent": "x"}, id="node", marks=pytest.mark.thorough),
    ],
)
def test_a_job_that_never_runs_ends_in_time_and_the_release_is_gone(
    release: Release, kubectl: Kubectl, value: dict[str, str]
) -> None:
    release.begin({**SIMULATED, **value})
    began = time.monotonic()
    with pytest.raises(Failed, match="job orion-cleanup failed: DeadlineExceeded"):
        release.uninstall()
    assert DEADLINE <= time.monotonic() - began < DEADLINE + MORE_SECONDS
    assert not release.there()
    nothing_is_left(kubectl, release)


def test_an_object_that_cannot_be_cleaned_is_reported_and_the_rest_is_clean(
    release: Release, kubectl: Kubectl, node: Node, control_plane: Access
) -> None:
    release.install({**SIMULATED, "uninstall.deadlineSeconds": 300})  # three tries, with pauses between them
    eventually(lambda: all(release.allocatable(node.name).values()) and marks_of_nodes(kubectl))
    forbid_cleaning_of_nodes(kubectl)
    with pytest.raises(Failed, match="job orion-cleanup failed: BackoffLimitExceeded") as failed:
        release.uninstall()
    assert "not everything could be cleaned: 403: PATCH /api/v1/nodes/node-1" in str(failed.value)
    nothing_is_claimed(kubectl)
    assert {mark.rpartition(" ")[2] for mark in marks_of_nodes(kubectl)} >= {"orion.gpu/gpus", "orion.gpu/simulated"}

    kubectl("delete", "validatingadmissionpolicy", POLICY)
    eventually(lambda: _may_clean(kubectl))
    assert main(["cleanup", "--kubeconfig", str(control_plane.kubeconfig)]) == 0
    nothing_is_left(kubectl, release)


def test_if_the_job_is_rejected_the_command_of_the_docs_removes_its_rights(release: Release, kubectl: Kubectl) -> None:
    release.begin({**SIMULATED, "image.tag": "absent"})
    forbid_jobs(kubectl, release.namespace)
    with pytest.raises(Failed, match="exceeded quota"):
        release.uninstall()
    assert not release.there()
    assert "clusterrolebinding.rbac.authorization.k8s.io/orion-cleanup" in left(kubectl, release)
    kubectl(*removal_of_rights())
    kubectl("delete", "quota", QUOTA, f"--namespace={release.namespace}")
    nothing_is_left(kubectl, release)


def removal_of_rights() -> list[str]:
    """Return the arguments of the kubectl command in the docs that removes the Job's rights."""
    (command,) = re.findall(r"^    kubectl (delete clusterrolebinding.*)$", DOCS.read_text(), re.MULTILINE)
    return shlex.split(command)


def forbid_jobs(kubectl: Kubectl, namespace: str) -> None:
    """Make the API server reject Jobs of a namespace; return once it rejects them."""
    kubectl("create", "quota", QUOTA, "--hard=count/jobs.batch=0", f"--namespace={namespace}")

    def forbidden() -> bool:
        try:
            kubectl("create", "job", "tried", "--image=none", "--dry-run=server", f"--namespace={namespace}")
        except subprocess.CalledProcessError:
            return True
        return False

    eventually(forbidden)


def forbid_cleaning_of_nodes(kubectl: Kubectl) -> None:
    """Make the API server reject the Job's changes of nodes; return once it rejects them."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]}
    refusal = {
        "expression": f"request.userInfo.username != '{CLEANUP}'",
        "message": "not by you",
        "reason": "Forbidden",
    }
    spec: dict[str, Any] = {"matchConstraints": {"resourceRules": [rule]}, "validations": [refusal]}
    meta = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": POLICY}}
    bound = {"policyName": POLICY, "validationActions": ["Deny"]}
    for kind, made in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound)):
        kubectl("create", "--filename=-", given=json.dumps({**meta, "kind": kind, "spec": made}))
    eventually(lambda: not _may_clean(kubectl))


def _may_clean(kubectl: Kubectl) -> bool:
    """Return whether admission policies let the Job's account change a node; RBAC allows it everything here."""
    somebody = (f"--as={CLEANUP}", "--as-group=system:masters")
    try:
        kubectl("annotate", "node", "node-1", "tried=x", "--overwrite", "--dry-run=server", *somebody)
    except subprocess.CalledProcessError:
        return False
    return True
