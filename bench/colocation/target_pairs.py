"""Finds the measured pairs and systems that belong to a target."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from orion.bench.colocation.summary import Client, PairFigures, SystemFigures

LOAD_TOLERANCE = 0.03
RATE_TOLERANCE = 0.05
USUAL = {"mode": "graph"}
"""Values of options that neither the scenario nor the process gives.

A pair does not match a target if it lacks any other option of the target.
"""


@dataclass(frozen=True)
class Kind:
    """A workload of a target."""

    title: str
    workloads: tuple[str, ...]
    """Names of workloads, any of which matches."""
    options: tuple[tuple[str, Any], ...] = ()

    def covers(self, client: Client) -> bool:
        """Return whether a client ran this workload."""
        named = client.workload in self.workloads
        return named and all(client.facts.get(name, USUAL.get(name)) == value for name, value in self.options)


@dataclass(frozen=True)
class Asked:
    """A pair of a target: hp, be, and hp's load or rate."""

    hp: Kind
    be: Kind
    load: float | None = None
    """Share of hp's capacity; None: every load matches."""
    rate: float | None = None
    """Requests a second; None: every rate matches."""

    def __str__(self) -> str:
        return f"{self.hp.title} beside {self.be.title}"

    def covers(self, pair: PairFigures) -> bool:
        """Return whether a measured pair matches, with one be client."""
        if len(pair.be) != 1 or not self.hp.covers(pair.hp) or not self.be.covers(pair.be[0]):
            return False
        if self.rate is not None and (pair.rate is None or abs(pair.rate / self.rate - 1) > RATE_TOLERANCE):
            return False
        return self.load is None or abs(_load(pair) - self.load) <= LOAD_TOLERANCE


@dataclass(frozen=True)
class Found:
    """A measured system for a pair of a target."""

    asked: Asked
    pair: PairFigures
    system: SystemFigures

    @property
    def name(self) -> str:
        """Return the names of the pair and of the system."""
        return f"{self.pair.name}, {self.system.system}"


def find(
    pairs: Iterable[PairFigures], asked: Sequence[Asked], mode: str, policy: str, with_budget: bool
) -> list[Found]:
    """Find Orion's figures for the pairs of a target.

    Args:
        pairs: The measured pairs.
        asked: The pairs of the target.
        mode: Sharing mode: "timeslice", "mps" or "threads".
        policy: The scheduling policy.
        with_budget: Include systems with an overlap budget.
    """
    return [
        Found(wanted, pair, system)
        for pair in pairs
        for wanted in asked
        if wanted.covers(pair)
        for system in pair.systems
        if is_orion(system, mode, policy) and (with_budget or (system.spec.max_slowdown or 1.0) == 1.0)
    ]


def is_orion(system: SystemFigures, mode: str, policy: str) -> bool:
    """Return whether a system is Orion with this mode and policy."""
    spec = system.spec
    return spec.kind == "orion" and (spec.mode or "timeslice") == mode and (spec.policy or "orion") == policy


def _load(pair: PairFigures) -> float:
    if pair.load is not None:
        return pair.load
    return sum(pair.hp_share) / len(pair.hp_share) if pair.hp_share else float("nan")


RESNET_64 = Kind("ResNet-50 b64", ("resnet50-inference",), (("batch", 64), ("mode", "graph")))
RESNET_4 = Kind("ResNet-50 b4", ("resnet50-inference",), (("batch", 4), ("mode", "graph")))
BERT_16 = Kind("BERT b16", ("bert-inference",), (("batch", 16),))
DECODE_1 = Kind("decode b1", ("gpt-decode",), (("batch", 1),))
DECODE_32 = Kind("decode b32", ("gpt-decode",), (("batch", 32),))
FREE_DECODE_1 = Kind("decode b1 without a sync per token", ("gpt-decode-unsynchronised",), (("batch", 1),))
ANY_DECODE_1 = Kind("decode b1", ("gpt-decode", "gpt-decode-unsynchronised"), (("batch", 1),))
RESNET_TRAINING = Kind("ResNet-50 training", ("resnet50-training",))
BERT_TRAINING = Kind("BERT training", ("bert-training",))
ANY_TRAINING = Kind("training", ("resnet50-training", "bert-training", "gpt-training"))
STALLED_TRAINING = Kind("training with a stall of 30 %", ANY_TRAINING.workloads, (("stall", 0.3),))
GEMM = Kind("GEMM 8192", ("gemm",), (("size", 8192),))
LONG_50 = Kind("50 ms kernels", ("long-kernel",), (("ms", 50),))

SERVERS = ((RESNET_64, 0.35), (BERT_16, 0.50), (DECODE_1, 0.45), (DECODE_32, 0.45))
BESIDE_TRAINING = tuple(Asked(hp, be, load) for hp, load in SERVERS for be in (RESNET_TRAINING, BERT_TRAINING))
BESIDE_GEMM = tuple(Asked(hp, GEMM, load) for hp, load in SERVERS)
OVERLAP = (Asked(FREE_DECODE_1, GEMM, 0.52),)
DECODE_BESIDE_GEMM = (Asked(ANY_DECODE_1, GEMM),)
CEILING = tuple(Asked(hp, be) for hp in (ANY_DECODE_1, RESNET_4) for be in (GEMM, RESNET_TRAINING))
STALLED = (Asked(STALLED_TRAINING, ANY_TRAINING),)
BEHIND_LONG_KERNELS = (
    (Asked(RESNET_4, LONG_50, rate=120.0), 12.7),
    (Asked(RESNET_64, LONG_50, rate=60.0), 54.9),
    (Asked(ANY_DECODE_1, LONG_50, rate=8.0), 197.0),
)
"""hp's p99 in ms for each pair, measured on an H200 with a gate that allows one launch in flight.

When the processes were unmanaged, hp's p99 was 12.9, 64.9 and 320 ms.
"""
