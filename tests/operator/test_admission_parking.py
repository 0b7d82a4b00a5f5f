"""Admission warns of pods that could not be parked as their GPUShare wants."""

from typing import Any

import pytest

from orion.crds.governing import Shares
from orion.crds.share import GPUShare
from orion.operator.webhook.admitting import Cluster, admit
from orion.operator.webhook.decisions import Decision, Outcome
from orion.operator.webhook.defaults import Defaults

PROBE = {"livenessProbe": {"httpGet": {"path": "/", "port": 80}}}
PARKS = {"limit": "20Gi", "oversubscribe": "park"}


def decided(*containers: dict[str, Any], memory: dict[str, Any] | None = None, gpus: int = 1, **spec: Any) -> Decision:
    """Return the decision about a be pod of containers c0, c1, ...; those without `resources` have a GPU."""
    share = GPUShare.read({
        "metadata": {"name": "train"},
        "spec": {"priority": "be", "selector": {"matchLabels": {"app": "train"}}, "memory": memory or PARKS},
    })  # fmt: skip
    gpu = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    named = [{"name": f"c{number}", **gpu, **container} for number, container in enumerate(containers)]
    marks = {"annotations": {"orion/priority": "be"}, "labels": {"app": "train"}}
    return admit({"metadata": marks, "spec": {"containers": named, **spec}}, Cluster(Shares([share])), Defaults())


def needing(limit: Any, request: Any = None, gpus: int = 1) -> dict[str, Any]:
    """Return a container with host memory."""
    requests = {} if request is None else {"requests": {"memory": request}}
    return {"resources": {"limits": {"nvidia.com/gpu": str(gpus), "memory": limit}, **requests}}


def test_a_memory_limit_that_cannot_hold_what_a_slot_may_park_is_warned_of() -> None:
    decision = decided(needing("16Gi"))
    assert decision.outcome is Outcome.PATCHED
    assert decision.cautions == (
        "HostMemoryShort: container c0 may have to park 20Gi of GPU memory in host memory, besides what its program "
        "needs, and its memory limit is 16Gi: raise resources.limits.memory to more than 20Gi",
    )


def test_what_a_container_requests_for_itself_counts_beside_what_it_parks() -> None:
    assert decided(needing("22Gi", "2Gi")).cautions == ()
    [caution] = decided(needing("21Gi", "2Gi")).cautions
    assert "besides the 2Gi that it requests" in caution
    assert caution.endswith("raise resources.limits.memory to 22Gi")


@pytest.mark.parametrize(
    ("containers", "spec"),
    [
        ([needing("20Gi", "20Gi")], {}),  # the request says nothing about what the program needs
        ([needing(20 * 2**30)], {}),
        ([{}], {}),  # the node's memory is the limit
        ([needing("much")], {}),  # the API server refuses it
        ([{}], {"resources": {"limits": {"memory": "20Gi"}}}),
    ],
)
def test_a_pod_with_the_room_gets_no_warning(containers: list[dict[str, Any]], spec: dict[str, Any]) -> None:
    assert decided(*containers, **spec).cautions == ()


def test_each_gpu_of_a_container_may_have_to_be_parked() -> None:
    [caution] = decided(needing("30Gi", gpus=2)).cautions
    assert "may have to park 40Gi" in caution


def test_a_limit_of_the_whole_pod_counts_all_of_its_slots() -> None:
    [caution] = decided({}, {}, resources={"limits": {"memory": "30Gi"}}).cautions
    assert caution.startswith("HostMemoryShort: the pod may have to park 40Gi of GPU memory in host memory")


@pytest.mark.parametrize("memory", [{"limit": "20Gi"}, {"limit": "20Gi", "oversubscribe": "none"}])
def test_a_pod_that_is_never_parked_gets_no_warning(memory: dict[str, Any]) -> None:
    assert decided(needing("1Gi") | PROBE, memory=memory).cautions == ()


def test_a_liveness_probe_keeps_a_pod_from_being_parked() -> None:
    decision = decided(PROBE)
    assert decision.probed
    assert decision.cautions == (
        "container c0 has a liveness probe, which would fail while the pod is parked, so the pod is never parked: "
        "remove the probe, or set spec.memory.parkWithLivenessProbe of GPUShare train to true",
    )


def test_a_share_may_allow_to_park_with_a_liveness_probe() -> None:
    allowed = {**PARKS, "parkWithLivenessProbe": True}
    assert decided(PROBE, memory=allowed).cautions == ()
    [caution] = decided(needing("16Gi") | PROBE, memory=allowed).cautions
    assert caution.startswith("HostMemoryShort")


def test_a_probe_of_a_container_without_a_slot_does_not_matter() -> None:
    aside = {"resources": {}, **PROBE}
    decision = decided({}, aside)
    assert (decision.probed, decision.cautions) == (False, ())
