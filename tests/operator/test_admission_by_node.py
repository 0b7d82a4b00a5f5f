"""Admission where each node chooses between device plugin and DRA driver: which one a pod gets, and where it may go."""

from typing import Any

import pytest

from orion.crds.annotations import ALLOCATION
from orion.operator.webhook.cluster_facts import all_of, read_gpu
from orion.operator.webhook.decisions import Decision, Outcome, Reason
from tests.operator.admitted_pod import BE, decide, pod, share

TO_DRA = {"key": ALLOCATION, "operator": "In", "values": ["dra"]}
TO_PLUGIN = {"key": ALLOCATION, "operator": "NotIn", "values": ["dra"]}
FLOOR: dict[str, Any] = {"compute": {"request": 0.3}}


def chosen(decision: Decision) -> str:
    """Which program gives the pod its slots; its affinity must say the same."""
    assert decision.outcome is Outcome.PATCHED
    spec = decision.pod["spec"]
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    by_claim = "resourceClaims" in spec
    for term in affinity["nodeSelectorTerms"]:
        assert (TO_DRA if by_claim else TO_PLUGIN) in term["matchExpressions"]
    return "dra" if by_claim else "device-plugin"


def choose(given: dict[str, Any], some_claims: bool = True, default: str = "device-plugin", **spec: Any) -> str:
    shares = [share("chat", "be", app="chat", **spec)] if spec else []
    decision = decide(given, *shares, allocation="by-node", by_node_default=default, some_claims=some_claims)
    after = dict(decision.pod)
    again = decide(after, *shares, allocation="by-node", by_node_default=default, some_claims=some_claims)
    assert again.outcome is Outcome.UNCHANGED
    return chosen(decision)


def required(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    selector = {"nodeSelectorTerms": [{"matchExpressions": each} for each in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}}


@pytest.mark.parametrize("default", ["device-plugin", "dra"])
def test_a_pod_that_both_can_serve_gets_the_default(default: str) -> None:
    assert choose(pod(annotations=BE), default=default) == default
    assert choose(pod(annotations=BE), default=default, memory={"limit": "8Gi"}) == default


@pytest.mark.parametrize(
    "spec", [FLOOR, {"memory": {"request": "8Gi"}}, {"devices": {"inCommon": "orion.gpu/nvlink"}}], ids=str
)
def test_what_only_claims_keep_needs_a_node_that_gives_claims(spec: dict[str, Any]) -> None:
    assert choose(pod(annotations=BE), True, **spec) == "dra"
    assert choose(pod(annotations=BE), False, **spec) == "device-plugin"


@pytest.mark.parametrize(
    ("spec", "giver"),
    [
        ({"nodeSelector": {ALLOCATION: "dra"}}, "dra"),
        ({"nodeSelector": {ALLOCATION: "device-plugin"}}, "device-plugin"),
        (required([TO_DRA]), "dra"),
        (required([TO_PLUGIN]), "device-plugin"),
        (required([{"key": ALLOCATION, "operator": "DoesNotExist"}]), "device-plugin"),
        (required([TO_DRA], [TO_DRA, {"key": "zone", "operator": "In", "values": ["a"]}]), "dra"),
    ],
    ids=str,
)
def test_the_nodes_that_a_pod_selects_come_before_share_and_default(spec: dict[str, Any], giver: str) -> None:
    for default in ("device-plugin", "dra"):
        assert choose(pod(annotations=BE, **spec), default=default, **FLOOR) == giver


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"zone": "a"}},
        required([TO_DRA], [TO_PLUGIN]),
        required([{"key": ALLOCATION, "operator": "Exists"}]),
        required([TO_DRA, TO_PLUGIN]),
        {"nodeSelector": {ALLOCATION: "nonsense"}},
    ],
    ids=str,
)
def test_a_selection_that_leaves_both_or_none_decides_nothing(spec: dict[str, Any]) -> None:
    assert choose(pod(annotations=BE, **spec)) == "device-plugin"
    assert choose(pod(annotations=BE, **spec), **FLOOR) == "dra"


def test_a_pod_that_names_its_node_gets_the_device_plugin_and_no_affinity() -> None:
    decision = decide(pod(annotations=BE, nodeName="a"), allocation="by-node", by_node_default="dra")
    assert "resourceClaims" not in decision.pod["spec"]
    assert "affinity" not in decision.pod["spec"]
    refused = decide(pod(annotations=BE, nodeName="a", nodeSelector={ALLOCATION: "dra"}), allocation="by-node")
    assert refused.reason is Reason.NO_SCHEDULER


def test_a_claim_that_somebody_wrote_needs_no_affinity() -> None:
    uses = {"resources": {"claims": [{"name": "orion", "request": "gpu"}]}}
    given = pod(uses, annotations=BE, resourceClaims=[{"name": "orion", "resourceClaimName": "mine"}])
    assert "affinity" not in decide(given, allocation="by-node").pod["spec"]


def test_the_reason_is_said() -> None:
    decision = decide(
        pod(annotations=BE), share("chat", "be", app="chat", **FLOOR), allocation="by-node", some_claims=True
    )
    assert "the DRA driver gives the pod its slots: GPUShare chat has spec.compute.request, which only claims keep" in (
        decision.because
    )


def test_a_second_review_keeps_the_choice_whatever_has_changed() -> None:
    for given, default in (({}, "device-plugin"), (FLOOR, "dra")):
        chat, other = share("chat", "be", app="chat", **given), "dra" if default == "device-plugin" else "device-plugin"
        first = decide(pod(annotations=BE), chat, allocation="by-node", by_node_default=default)
        again = decide(dict(first.pod), chat, allocation="by-node", by_node_default=other, some_claims=not given)
        assert again.outcome is Outcome.UNCHANGED


@pytest.mark.parametrize("allocation", ["device-plugin", "dra"])
def test_a_cluster_with_one_program_pins_nothing(allocation: str) -> None:
    decision = decide(pod(annotations=BE), allocation=allocation)
    assert "affinity" not in decision.pod["spec"]


def test_gpus_say_whether_some_node_gives_claims() -> None:
    gpus = [{"status": {"allocation": each}} for each in ("device-plugin", "dra")]
    assert [all_of(map(read_gpu, given)).some_claims for given in (gpus, gpus[:1], [])] == [True, False, False]
    assert not read_gpu({"status": {"allocation": "dra", "health": "Unknown"}}).some_claims
