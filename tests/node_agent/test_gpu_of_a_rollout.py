"""Which GPU of a node offers a slot to a rolling update whose workload has pods on several GPUs."""

from types import SimpleNamespace
from typing import Any

from orion.node_agent.advertising.advertising import FINE, Verdict
from orion.node_agent.cluster.holders.identity import ResolvedHolder
from orion.node_agent.cluster.holders.rollouts import Rollouts
from orion.node_agent.slots.holders import Holder

CORDONED = Verdict(cordoned=True, reason="Cordoned", message="its GPUDevice is cordoned")


def choosing(**verdicts: Verdict) -> list[str]:
    """The GPUs that offer a slot, if each of these GPUs has a pod of the workload in its only hp slot."""
    pods: Any = SimpleNamespace(rollout="web", known={})
    identity: Any = SimpleNamespace(holders={})
    for gpu in verdicts:
        identity.holders[gpu, "hp-0"] = ResolvedHolder(Holder("n", gpu, "main", gpu))
        pods.known["n", gpu] = SimpleNamespace(uid=gpu, workload="web")
    memory = SimpleNamespace(shared_gpu=SimpleNamespace(gpu=SimpleNamespace(memory_bytes=1)))
    advertising = SimpleNamespace(verdict=verdicts.__getitem__, slots=SimpleNamespace(count_hp=lambda _: 1))
    agent: Any = SimpleNamespace(gpus=dict.fromkeys(verdicts, memory), advertising=advertising)
    grants: Any = SimpleNamespace(held=lambda _: [])
    rollouts = Rollouts(pods, identity, grants, agent)
    return [gpu for gpu in verdicts if rollouts.needs_slot(gpu)]


def test_one_gpu_offers_a_slot() -> None:
    assert len(choosing(a=FINE, b=FINE)) == 1


def test_a_gpu_that_takes_no_pods_offers_none() -> None:
    assert choosing(a=CORDONED, b=FINE) == ["b"]
    assert choosing(a=FINE, b=Verdict(healthy=False, reason="Lost", message="it is lost")) == ["a"]
    assert choosing(a=CORDONED) == []
