"""How much one service, or two together, can do on a part. The figures order the search; the plan itself is checked."""

from collections.abc import Sequence
from math import ceil, sqrt

from .batches import fitted
from .prediction import Load, Predictor
from .services import GpuType, Occupant, Profile, Service

GRAIN = 0.05
""" Slowdowns are rounded up to this grain where a figure only orders the search. """
TOGETHER = (1.0, 0.96, 0.92, 0.88, 0.84, 0.79, 0.73, 0.65, 0.55, 0.4, 0.2)
""" Sums of loads that two services are tried with. """
HALVINGS = 6
LEAST_LOAD = 1e-4
""" A service whose objective is less than two of its batches holds it only where hardly a request finds another one. A
whole GPU is tried for it down to this part of what it could do. """
WHOLE = 100
SHORT = 48
""" Steps of a prediction that only orders the search. """
TYPICAL_BATCH = 8

Key = tuple[Profile, float, float, float]


def allowed(service: Service, margin: float) -> float:
    """Return the misses that a plan may predict for a service: a part of those that its objective allows."""
    return (1.0 - service.quantile) * margin


def rounded(slowdown: float, grain: float = GRAIN) -> float:
    """Return the slowdown rounded up to the grain."""
    return round(1.0 + ceil(round((slowdown - 1.0) / grain, 6)) * grain, 6)


class Capacities:
    """Figures of services on parts, each worked out once.

    They depend on profiles, objectives and slowdowns alone. So it makes no difference what was asked before, and one
    object serves any number of plans.
    """

    def __init__(self) -> None:
        self.predictor = Predictor()
        self._times: dict[tuple[Profile, int, float], tuple[float, ...]] = {}
        self._alone: dict[tuple[Key, int, float], float] = {}
        self._together: dict[tuple[Key, Key, int, float], float] = {}

    def times(self, profile: Profile, share: int, slowdown: float) -> tuple[float, ...]:
        """Return how long a batch takes, by batch from 1 on."""
        key = (profile, share, slowdown)
        if key not in self._times:
            self._times[key] = profile.times_ms(share, slowdown)
        return self._times[key]

    def loads(
        self, services: Sequence[Service], rates: Sequence[float], gpu: str, share: int, slowdowns: Sequence[float]
    ) -> tuple[Load, ...]:
        """Return the services of one part with the batches that they should form; empty: they cannot share a part."""
        times = [
            self.times(service.profiles[gpu], share, slowdown)
            for service, slowdown in zip(services, slowdowns, strict=True)
        ]
        objectives = [service.objective_ms for service in services]
        return fitted(rates, objectives, times, [service.max_delay_ms for service in services])

    def alone(self, service: Service, gpu: str, share: int, slowdown: float, margin: float) -> float:
        """Return the highest rate (requests/s) at which a service alone on a part holds its objective; 0: none."""
        if gpu not in service.profiles:
            return 0.0
        key = (_key(service, gpu, margin), share, slowdown)
        if key not in self._alone:
            self._alone[key] = self._highest(service, gpu, share, slowdown, allowed(service, margin))
        return self._alone[key]

    def _highest(self, service: Service, gpu: str, share: int, slowdown: float, most_missed: float) -> float:
        loads = self.loads([service], [1.0], gpu, share, [slowdown])
        if not loads:
            return 0.0
        batch = len(loads[0].times_ms)
        most = 1000.0 * batch / loads[0].times_ms[-1]

        def holds(part: float) -> bool:
            load = Load(most * part, service.objective_ms, loads[0].times_ms, service.max_delay_ms)
            return self.predictor.predicted((load,), SHORT).misses[0] <= most_missed

        low, high = 0.0, 1.0
        for step in range(HALVINGS):
            middle = 0.95 if step == 0 else (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        for _ in range(HALVINGS if not low and share == WHOLE else 0):
            middle = sqrt(max(low, LEAST_LOAD) * high)
            low, high = (middle, high) if holds(middle) else (low, middle)
        return most * low

    def can_wait(self, one: Service, other: Service, gpu: str) -> bool:
        """Return whether a request of one service on the whole GPU can wait for a single request of the other."""
        first, second = (self.times(service.profiles[gpu], 100, 1.0)[0] for service in (one, other))
        return first + second <= one.objective_ms - one.max_delay_ms

    def together(self, one: Service, other: Service, gpu: str, share: int, slowdown: float, margin: float) -> float:
        """Return which sum of loads (rate over `alone`) two services can have on one part; 0: they cannot share it."""
        first, second = sorted((one, other), key=lambda service: service.name)
        key = (_key(first, gpu, margin), _key(second, gpu, margin), share, slowdown)
        if key not in self._together:
            self._together[key] = self._sum((first, second), gpu, share, slowdown, margin)
        return self._together[key]

    def _sum(self, pair: Sequence[Service], gpu: str, share: int, slowdown: float, margin: float) -> float:
        alone = [self.alone(service, gpu, share, slowdown, margin) for service in pair]
        if not all(alone):
            return 0.0
        for total in TOGETHER:
            loads = self.loads(pair, [rate * total / 2 for rate in alone], gpu, share, [slowdown] * 2)
            if not loads:
                continue
            misses = self.predictor.predicted(loads, SHORT).misses
            if all(missed <= allowed(service, margin) for missed, service in zip(misses, pair, strict=True)):
                return total
        return 0.0


def expected_slowdown(
    gpu: GpuType, services: Sequence[Service], mine: Service, others: Sequence[int], share: int
) -> float:
    """Return the largest slowdown of a service on a part, whichever of the services stand on the GPU's other parts.

    Args:
        gpu: the type.
        services: who may be a neighbour.
        mine: the service.
        others: the shares of the other parts.
        share: the service's own share.
    """
    me = Occupant(mine.name, TYPICAL_BATCH, share, 0)
    found = [
        gpu.slowdown(me, [Occupant(other.name, TYPICAL_BATCH, size, part) for part, size in enumerate(others, 1)])
        for other in services
        if gpu.name in other.profiles
    ]
    return rounded(max(found, default=1.0)) if others else 1.0


def _key(service: Service, gpu: str, margin: float) -> Key:
    return service.profiles[gpu], service.objective_ms, service.max_delay_ms, allowed(service, margin)
