"""What sharing costs on a type of GPU: figures with their sources, and the slowdown that follows from them.

Where slowdowns of pairs are measured, those are used instead (for instance glet's model on the RTX 2080 Ti).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .services import Occupant, Profile, Slowdown


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure, and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Costs:
    """What sharing costs on one type of GPU.

    Attributes:
        gpu: the type.
        mps: how much longer work takes under MPS, as a part of its time, with nobody beside it.
        second_client: how much longer work takes when any second process has a context on the GPU.
        busy_period_ms: GPU time that best-effort work loses for each busy period of the services above it.
        co_runs: the most work that services on parts of one GPU do together; 1: what one of them does alone.
    """

    gpu: str
    mps: Figure
    second_client: Figure
    busy_period_ms: Figure
    co_runs: Figure


H200 = Costs(
    gpu="H200",
    mps=Figure(0.075, "one H200: MPS alone 2.5 to 7.5 %; the larger is taken"),
    second_client=Figure(0.10, "one H200: any second client 5 to 10 %; the larger is taken"),
    busy_period_ms=Figure(0.30, "docs/results/colocation.md: what be loses for each busy period of hp"),
    co_runs=Figure(1.33, "one H200: hp and be under MPS did 1.05 to 1.33 times the work of one of them"),
)

_ALL = (H200,)


def known(gpu: str) -> Costs | None:
    """Return the costs of a GPU by the name of its model (`H200`, `NVIDIA H200`); None: nobody measured them."""
    return next((costs for costs in _ALL if costs.gpu in gpu.split()), None)


def slowdown(costs: Costs, profiles: Mapping[str, Profile], *, one_process: bool = False) -> Slowdown:
    """Return the slowdown on this GPU, where none is measured for the pairs themselves.

    Parts of one GPU pay for MPS and for the second client; in one process (green contexts) they pay neither. If the
    parts together would do more work than `co_runs` allows, all are slowed down in proportion.

    Args:
        costs: of the GPU.
        profiles: of each service, by name.
        one_process: whether the services run in one process.
    """
    clients = 1.0 if one_process else 1.0 + costs.mps.value + costs.second_client.value

    def slowed(mine: Occupant, others: Sequence[Occupant]) -> float:
        if not others:
            return 1.0
        speeds: dict[int, float] = {}
        for each in (mine, *others):
            speeds[each.part] = max(speeds.get(each.part, 0.0), _speed(profiles[each.service], each))
        return clients * max(1.0, sum(speeds.values()) / costs.co_runs.value)

    return slowed


def _speed(profile: Profile, occupant: Occupant) -> float:
    """Return the work that a service does on its share, as a part of what it does on the whole GPU."""
    batch = min(occupant.batch, profile.max_batch) - 1
    return profile.alone_ms[100][batch] / profile.alone_ms[occupant.share][batch]
