"""Which GPU of a node offers a slot to a rolling update whose workload has pods on several GPUs."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from orion.crds.workloads import Revision
from orion.node_agent.advertising.advertising import FINE, Verdict
from orion.node_agent.cluster.holders.resolving import ResolvedHolder
from orion.node_agent.cluster.holders.rollouts import Rollouts
from orion.node_agent.slots.holders import Holder
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.parking_state import SlotParking

CORDONED = Verdict(cordoned=True, reason="Cordoned", message="its GPUDevice is cordoned")
OLD, NEW = Revision("web", "old"), Revision("web", "new")


MIB = 1 << 20


def shared_gpu(gpu: str, parks: bool = False, sure: int = 0, has: int = 0, state: str = "") -> SimpleNamespace:
    """A GPU with 10 MiB and a be slot."""
    slot = SimpleNamespace(memory_sharing=MemorySharing(sure * MIB, parks), parking=SlotParking(state=state))
    client = SimpleNamespace(record=SimpleNamespace(memory_mib=has), uncounted_mib=0)
    card = SimpleNamespace(uuid=gpu, memory_bytes=10 * MIB)
    return SimpleNamespace(gpu=card, slots={"be-0": slot}, of_slot=lambda _: [client])


def choosing(
    verdicts: Mapping[str, Verdict],
    revisions: Mapping[str, Revision] | None = None,
    both: Sequence[str] = (),
    used: Mapping[str, int] | None = None,
    parks: Mapping[str, tuple[Any, ...]] | None = None,
) -> list[str]:
    """The GPUs that offer a slot to the new revision, if each of these GPUs has a pod in its only hp slot.

    Args:
        verdicts: by GPU.
        revisions: of the GPUs' pods; the old one unless given.
        both: GPUs that have a pod of the new revision besides.
        used: how many MiB of a GPU with 10 MiB are used.
        parks: by GPU, whether its be slot may be parked, the MiB that it is sure of and has, and its state.
    """
    pods: Any = SimpleNamespace(rollout=NEW, known={})
    identity: Any = SimpleNamespace(holders={})
    for gpu in verdicts:
        identity.holders[gpu, "hp-0"] = ResolvedHolder(Holder("n", gpu, "main", gpu))
        pods.known["n", gpu] = SimpleNamespace(uid=gpu, revision=(revisions or {}).get(gpu, OLD))
    for gpu in both:
        identity.holders[gpu, "hp-1"] = ResolvedHolder(Holder("n", f"{gpu}-new", "main", f"{gpu}-new"))
        pods.known["n", f"{gpu}-new"] = SimpleNamespace(uid=f"{gpu}-new", revision=NEW)
    gpus = {gpu: SimpleNamespace(shared_gpu=shared_gpu(gpu, *(parks or {}).get(gpu, ()))) for gpu in verdicts}
    advertising = SimpleNamespace(verdict=verdicts.__getitem__, slots=SimpleNamespace(count_hp=lambda _: 1))
    usage = SimpleNamespace(known=lambda gpu: (used or {}).get(gpu.uuid, 0) * MIB)
    agent: Any = SimpleNamespace(gpus=gpus, advertising=advertising, usage=usage)
    grants: Any = SimpleNamespace(held=lambda _: [])
    rollouts = Rollouts(pods, identity, grants, agent)
    return [gpu for gpu in verdicts if rollouts.needs_slot(gpu)]


def test_one_gpu_offers_a_slot() -> None:
    assert len(choosing({"a": FINE, "b": FINE})) == 1


def test_a_gpu_that_takes_no_pods_offers_none() -> None:
    assert choosing({"a": CORDONED, "b": FINE}) == ["b"]
    assert choosing({"a": FINE, "b": Verdict(healthy=False, reason="Lost", message="it is lost")}) == ["a"]
    assert choosing({"a": CORDONED}) == []


def test_a_gpu_whose_pod_is_already_new_offers_none() -> None:
    assert choosing({"a": FINE, "b": FINE}, {"a": NEW}) == ["b"]
    assert choosing({"a": FINE}, {"a": NEW}) == []
    assert choosing({"a": FINE}, {"a": Revision("other", "old")}) == []


def test_a_gpu_with_an_old_and_a_new_pod_offers_none_and_another_does() -> None:
    assert choosing({"a": FINE, "b": FINE}, both=["a"]) == ["b"]
    assert choosing({"a": FINE}, both=["a"]) == []


def test_the_gpu_with_the_most_unused_memory_offers_the_slot() -> None:
    assert choosing({"a": FINE, "b": FINE}, used={"a": 6, "b": 5}) == ["b"]
    assert choosing({"a": FINE, "b": FINE}, used={"a": 5, "b": 6}) == ["a"]


def test_memory_that_best_effort_gives_back_counts_as_unused() -> None:
    gpus = {"a": FINE, "b": FINE}
    assert choosing(gpus, used={"a": 9, "b": 5}, parks={"a": (True, 1, 8)}) == ["a"]
    assert choosing(gpus, used={"a": 9, "b": 5}, parks={"a": (False, 1, 8)}) == ["b"]
    assert choosing(gpus, used={"a": 9, "b": 5}, parks={"a": (True, 0, 8)}) == ["b"], "nobody knows what it needs"
    assert choosing(gpus, used={"a": 9, "b": 5}, parks={"a": (True, 7, 8)}) == ["b"]
    for state in ("refused", "lost", "leaving", "returning", "parked"):
        assert choosing(gpus, used={"a": 9, "b": 5}, parks={"a": (True, 1, 8, state)}) == ["b"], "it gives nothing back"
