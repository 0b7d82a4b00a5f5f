"""The planner for cases: services of measured models on GPUs of one type (orion simulate serving --cases)."""

from collections.abc import Sequence

from ..cases import Case, Decide, Limits, Measured
from ..plans import Plan
from .capacities import Capacities
from .choosing import plan
from .services import GpuType, Occupant, Profile, Service, Slowdown

TYPE = "measured"


def prepare(measured: Measured, limits: Limits) -> Decide:
    """Return the planner, which keeps what it works out of the measured figures from case to case."""
    profiles = {
        number: Profile(model.latency, model.memory_mb, model.overhead_ms, measured.max_batch)
        for number, model in measured.models.items()
    }
    gpu = GpuType(
        TYPE, limits.gpus, measured.gpu_memory_mb, _slowdown(measured), measured.part_memory_mb, limits.part_sizes,
        limits.parts_per_gpu or 5,
    )  # fmt: skip
    figures = Capacities()

    def decide(case: Case) -> Plan:
        services = [
            Service(str(each.model), each.rate, each.objective_ms, {TYPE: profiles[each.model]}) for each in case
        ]
        return plan(services, [gpu], figures=figures).plan

    return decide


def _slowdown(measured: Measured) -> Slowdown:
    known: dict[tuple[str, int, int, str, int, int], float] = {}

    def slowed(mine: Occupant, others: Sequence[Occupant]) -> float:
        largest = 1.0
        for other in others:
            key = (mine.service, mine.batch, mine.share, other.service, other.batch, other.share)
            if key not in known:
                me, neighbour = (int(key[0]), key[1], key[2]), (int(key[3]), key[4], key[5])
                known[key] = measured.slowdown(me, [neighbour])
            largest = max(largest, known[key])
        return largest

    return slowed
