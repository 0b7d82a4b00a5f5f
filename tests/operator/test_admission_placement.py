"""The nodes that an admitted pod accepts: by its GPUs, their memory, and rolling updates."""

from typing import Any

import pytest

from orion.operator.webhook.cluster_facts import read_gpu
from orion.operator.webhook.decisions import Decision, Outcome
from tests.operator.admitted_pod import BE, GPU, HP, TWO_GPUS, decide, pod, share

ENOUGH = {"key": "orion.gpu/gpus", "operator": "Gt", "values": ["1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}


def terms(decision: Decision) -> list[dict[str, Any]]:
    required = decision.pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[dict[str, Any]] = required["nodeSelectorTerms"]
    return found


def affinity(*alternatives: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*alternatives]}}
    return {"nodeAffinity": {**required, "preferredDuringSchedulingIgnoredDuringExecution": []}, "podAffinity": {}}


def test_a_container_with_several_gpus_needs_a_node_with_as_many() -> None:
    assert terms(decide(pod(GPU, TWO_GPUS, annotations=BE))) == [{"matchExpressions": [ENOUGH]}]
    for given in (pod(GPU, GPU, annotations=BE), pod(TWO_GPUS, annotations=BE, nodeName="n")):
        assert "affinity" not in decide(given).pod["spec"]


def test_every_alternative_of_the_pods_own_affinity_needs_enough_gpus() -> None:
    own = affinity({"matchExpressions": [ZONE]}, NAMED, {})
    decision = decide(pod(TWO_GPUS, affinity=own, annotations=BE))
    assert terms(decision) == [{"matchExpressions": [ZONE, ENOUGH]}, {**NAMED, "matchExpressions": [ENOUGH]}, {}]
    assert decision.pod["spec"]["affinity"]["podAffinity"] == {}
    assert own == affinity({"matchExpressions": [ZONE]}, NAMED, {})
    assert decide(dict(decision.pod)).outcome is Outcome.UNCHANGED


NO_ROLLOUT = {"key": "orion.gpu/rollout", "operator": "DoesNotExist"}


def of_deployment(namespace: str = "team", name: str = "web", template: str = "7d9f", **spec: Any) -> dict[str, Any]:
    """An hp pod of a Deployment's ReplicaSet."""
    found = pod(GPU, annotations=HP, **spec)
    found["metadata"] |= {"namespace": namespace, "labels": {"pod-template-hash": template}}
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"{name}-{template}",
        "uid": "1",
        "controller": True,
    }
    found["metadata"]["ownerReferences"] = [owner]
    return found


def own_rollout(given: dict[str, Any]) -> list[str]:
    """The values of a node's label with which an hp pod accepts the node."""
    alone, own = terms(decide(given))
    assert alone["matchExpressions"][-1] == NO_ROLLOUT
    expression = own["matchExpressions"][-1]
    assert (expression["key"], expression["operator"]) == ("orion.gpu/rollout", "In")
    values: list[str] = expression["values"]
    return values


def test_an_hp_pod_accepts_only_nodes_without_a_rolling_update_of_others() -> None:
    assert terms(decide(pod(GPU, annotations=HP))) == [{"matchExpressions": [NO_ROLLOUT]}]
    revision, ends = own_rollout(of_deployment())
    assert ends == f"ends-{revision}"
    assert len(ends) <= 63
    for other in (of_deployment(namespace="other"), of_deployment(name="api"), of_deployment(template="5c8b")):
        assert not {revision, ends} & set(own_rollout(other))


def test_a_pod_that_asks_for_the_node_of_another_rolling_update_gets_no_such_node() -> None:
    revision, _ = own_rollout(of_deployment())
    forged = {"key": "orion.gpu/rollout", "operator": "In", "values": [revision]}
    own = affinity({"matchExpressions": [forged]}, {"matchExpressions": [ZONE, NO_ROLLOUT]})
    decision = decide(pod(GPU, annotations=HP, affinity=own))
    assert terms(decision) == [{"matchExpressions": [forged, NO_ROLLOUT]}, {"matchExpressions": [ZONE, NO_ROLLOUT]}]
    assert decide(dict(decision.pod)).outcome is Outcome.UNCHANGED


def test_the_second_review_of_a_pod_of_a_workload_changes_nothing() -> None:
    decision = decide(of_deployment(affinity=affinity({"matchExpressions": [ZONE]}, NAMED)))
    assert len(terms(decision)) == 4
    assert decide(dict(decision.pod)).outcome is Outcome.UNCHANGED


LARGE = {"key": "orion.gpu/gpu-memory", "operator": "Gt", "values": [str(8 * 1024 - 1)]}


@pytest.mark.parametrize(
    ("memory", "largest", "waits"),
    [
        ({"limit": "8Gi"}, 7, True),
        ({"request": "8Gi", "limit": "20Gi"}, 7, True),
        ({"request": "1Gi", "limit": "20Gi"}, 7, False),
        ({"limit": "8Gi"}, 8, False),
        ({"limit": "8Gi"}, None, False),
        ({}, 7, False),
    ],
)
def test_a_pod_that_reserves_more_memory_than_any_known_gpu_has_waits_for_a_larger_one(
    memory: dict[str, str], largest: int | None, waits: bool
) -> None:
    chat = share("chat", app="chat", memory=memory)
    decision = decide(pod(), chat, largest=largest and largest * 2**30)
    assert decision.outcome is Outcome.PATCHED
    if waits:
        assert terms(decision) == [{"matchExpressions": [LARGE, NO_ROLLOUT]}]
        [caution] = decision.cautions
        assert "reserves 8Gi for each slot, and the largest GPU of the cluster has 7Gi" in caution
    else:
        assert terms(decision) == [{"matchExpressions": [NO_ROLLOUT]}]
        assert decision.cautions == ()


def test_a_part_of_a_mebibyte_counts_as_a_whole_one() -> None:
    decision = decide(pod(), share("chat", app="chat", memory={"request": str(2**33 + 1)}), largest=2**30)
    assert terms(decision)[0]["matchExpressions"][0]["values"] == [str(8 * 1024)]


def test_a_pod_with_several_large_gpus_needs_both_labels() -> None:
    decision = decide(pod(TWO_GPUS), share("chat", app="chat", memory={"limit": "8Gi"}), largest=2**30)
    assert terms(decision) == [{"matchExpressions": [ENOUGH, LARGE, NO_ROLLOUT]}]


def test_gpus_that_are_gone_do_not_count_as_the_largest() -> None:
    gpus = [
        {"status": {"health": health, "memory": {"total": "80Gi"}}} for health in ("Healthy", "Unhealthy", "Unknown")
    ]
    assert [read_gpu(gpu).largest for gpu in gpus] == [80 * 2**30, 80 * 2**30, None]
