"""Argo Rollouts' own controller: it labels running pods, and runs two versions of them side by side."""

import pytest

from testbed.neighbours import ARGO_ROLLOUTS
from tests.neighbours.conftest import Install
from tests.neighbours.workloads import Workloads, share, template
from tests.node.gpu_tenants import Manifest
from tests.waiting import eventually

pytestmark = pytest.mark.neighbours

HASH = "rollouts-pod-template-hash"


def rollout(version: str, **strategy: object) -> Manifest:
    pods = template("be", app="train")
    pods["metadata"]["annotations"]["version"] = version
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "train"}},
        "template": pods,
        "strategy": strategy,
        "progressDeadlineSeconds": 600,
    }
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "train"}, "spec": spec}


def service(name: str) -> Manifest:
    spec = {"selector": {"app": "train"}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def phase(workloads: Workloads) -> str:
    return str(workloads.read("rollout", "train").get("status", {}).get("phase"))


def versions(workloads: Workloads) -> list[str]:
    return sorted(pod.metadata.annotations["version"] for pod in workloads.pods(app="train").values())


def test_a_canary_is_paused_aborted_and_promoted(install: Install, workloads: Workloads) -> None:
    install(ARGO_ROLLOUTS)
    steps = {
        "steps": [{"setWeight": 50}, {"pause": {}}],
        "canaryMetadata": {"labels": {"role": "canary"}},
        "stableMetadata": {"labels": {"role": "stable"}},
    }
    workloads.apply(share("canary", "be", role="canary"), rollout("1", canary=steps))
    eventually(lambda: phase(workloads) == "Healthy", what=phase(workloads))
    assert {workloads.governed_by(pod) for pod in workloads.running(2, role="stable").values()} == {""}
    workloads.apply(rollout("2", canary=steps))
    eventually(lambda: phase(workloads) == "Paused")
    eventually(lambda: versions(workloads) == ["1", "2"])
    assert {workloads.governed_by(pod) for pod in workloads.running(1, role="canary").values()} == {"canary"}
    workloads.patch("rollout", "train", {"status": {"abort": True}}, "--subresource=status")
    eventually(lambda: versions(workloads) == ["1", "1"])
    workloads.apply(rollout("3", canary=steps))
    eventually(lambda: versions(workloads) == ["1", "3"])
    eventually(lambda: phase(workloads) == "Paused")
    workloads.patch("rollout", "train", {"status": {"promoteFull": True}}, "--subresource=status")
    eventually(lambda: versions(workloads) == ["3", "3"])
    eventually(lambda: phase(workloads) == "Healthy")
    promoted = workloads.running(2, role="stable")  # the controller changed the labels of the running canary
    assert {workloads.governed_by(pod) for pod in promoted.values()} <= {"canary", ""}
    assert "canary" in {workloads.governed_by(pod) for pod in promoted.values()}
    workloads.delete("rollout", "train")


def test_blue_and_green_run_side_by_side(install: Install, workloads: Workloads) -> None:
    install(ARGO_ROLLOUTS)
    colours = {
        "activeService": "active",
        "previewService": "preview",
        "autoPromotionEnabled": False,
        "scaleDownDelaySeconds": 1,
    }
    workloads.apply(service("active"), service("preview"), rollout("1", blueGreen=colours))
    eventually(lambda: phase(workloads) == "Healthy")
    workloads.apply(rollout("2", blueGreen=colours))
    eventually(lambda: phase(workloads) == "Paused")
    assert versions(workloads) == ["1", "1", "2", "2"]
    workloads.patch("rollout", "train", {"status": {"pauseConditions": None}}, "--subresource=status")
    eventually(lambda: versions(workloads) == ["2", "2"])
    workloads.delete("rollout", "train")
