"""Services onto GPUs: each service's rate is split over the fewest GPUs that hold its objective.

Two layouts exist. `steady`: a service keeps its GPUs all day, as many as its busiest hour needs. `hourly`: each span of
time has its own GPUs, so a GPU that one service does not need at night can serve another one. `search` takes the
hourly layout only if it saves GPUs, because a service that moves loads its model again.

Where a GPU may hold several services (`hp_per_gpu`), their requests share one queue. Two ways to fill GPUs are tried,
and the one with fewer GPUs counts: equal parts of each service, put together two or more on a GPU; and GPUs that are
filled one after the other, where a service's last part may be small. Refused: earliest deadline first among services,
because today's data plane cannot order requests of two processes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from .fleets import Fleet, Service
from .waiting import highest_rate, holds

Part = tuple[int, float]  # index of a service, part of its rate
Parts = tuple[Part, ...]  # on one GPU
_HALVINGS = 7
_LEAST_PART = 1e-6


@dataclass(frozen=True)
class Layout:
    """Which services each GPU runs.

    Attributes:
        name: `steady` or `hourly`.
        bounds_h: the spans' bounds, ascending.
        parts: by span and GPU: the services there and the part of their rate; GPUs beyond the end run none.
    """

    name: str
    bounds_h: tuple[float, ...]
    parts: tuple[tuple[Parts, ...], ...]

    @property
    def gpus(self) -> int:
        """The number of GPUs that run a service at any time."""
        return max(map(len, self.parts), default=0)


def fewest(service: Service, most: float, late_s: float) -> int:
    """Return how many GPUs of its own a service needs at a rate; it must be able to hold its objective."""
    return ceil(most / highest_rate(service.service_s, service.objective_s, late_s) - 1e-9)


def steady(fleet: Fleet) -> Layout:
    """Return the layout in which each service keeps its GPUs all day."""
    bounds_h = fleet.spans()
    packed = _pack(fleet, _highest(fleet), _rates(fleet, bounds_h))
    return Layout("steady", bounds_h, tuple(packed for _ in bounds_h[1:]))


def hourly(fleet: Fleet) -> Layout:
    """Return the layout that is decided for each span alone; a GPU keeps its services where that is possible."""
    bounds_h, highest = fleet.spans(), _highest(fleet)
    known: dict[tuple[float, ...], tuple[Parts, ...]] = {}
    spans: list[tuple[Parts, ...]] = []
    for rates in _rates(fleet, bounds_h):
        if rates not in known:
            known[rates] = _pack(fleet, highest, [rates])
        spans.append(_least_movement(known[rates], spans[-1]) if spans else known[rates])
    return Layout("hourly", bounds_h, tuple(spans))


def _rates(fleet: Fleet, bounds_h: Sequence[float]) -> list[tuple[float, ...]]:
    return [tuple(each.rate(begin_h) for each in fleet.services) for begin_h in bounds_h[:-1]]


def _highest(fleet: Fleet) -> tuple[float, ...]:
    """Return the highest rate of each service on one GPU."""
    return tuple(highest_rate(each.service_s, each.objective_s, _late_s(fleet, [each])) for each in fleet.services)


def _late_s(fleet: Fleet, services: Sequence[Service]) -> float:
    """Return how much later a request may begin on a GPU with some services."""
    return fleet.late_s if all(each.has_be for each in services) else 0.0


def _pack(fleet: Fleet, highest: Sequence[float], rates: Sequence[tuple[float, ...]]) -> tuple[Parts, ...]:
    """Return the services of each GPU for some spans at once."""
    peaks = [max(each) for each in zip(*rates, strict=True)]
    running = [index for index, peak in enumerate(peaks) if peak > 0]
    counts = {index: ceil(peaks[index] / highest[index] - 1e-9) for index in running}
    units = [(index, 1 / counts[index]) for index in running for _ in range(counts[index])]
    if fleet.hp_per_gpu == 1:
        return tuple((unit,) for unit in units)
    can = _Fitting(fleet, _undominated(rates))
    together = _together(fleet, units, can)
    poured = _poured(fleet, {index: min(1.0, highest[index] / peaks[index]) for index in running}, can)
    return together if len(together) <= len(poured) else poured


def _undominated(rates: Iterable[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return the spans that no other span exceeds in every service's rate, the fullest first."""
    kept: list[tuple[float, ...]] = []
    for each in sorted(set(rates), key=lambda span: (-sum(span), span)):
        if not any(all(a <= b for a, b in zip(each, other, strict=True)) for other in kept):
            kept.append(each)
    return kept


class _Fitting:
    """Answers whether parts of services hold their objectives and their memory on one GPU."""

    def __init__(self, fleet: Fleet, rates: Sequence[tuple[float, ...]]) -> None:
        self._fleet, self._rates = fleet, rates
        self._known: dict[Parts, bool] = {}

    def __call__(self, parts: Parts) -> bool:
        key = tuple(sorted(parts))
        if key not in self._known:
            self._known[key] = self._is_held(key)
        return self._known[key]

    def _is_held(self, parts: Parts) -> bool:
        services = [self._fleet.services[index] for index, _ in parts]
        if len(parts) > self._fleet.hp_per_gpu:
            return False
        if sum(each.memory_gb for each in services) > self._fleet.memory_gb + 1e-9:
            return False
        for rates in self._rates:
            loads = [
                (rates[index] * part, each.service_s, each.objective_s)
                for (index, part), each in zip(parts, services, strict=True)
                if rates[index] > 0
            ]
            if loads and not holds(
                [(rate, service_s) for rate, service_s, _ in loads], [each[2] for each in loads],
                _late_s(self._fleet, services),
            ):  # fmt: skip
                return False
        return True


def _together(fleet: Fleet, units: Sequence[Part], can: Callable[[Parts], bool]) -> tuple[Parts, ...]:
    """Put equal parts onto the first GPU that holds them, large parts first."""
    gpus: list[Parts] = []
    tried: set[tuple[Parts, Part]] = set()
    for unit in sorted(units, key=lambda each: (-fleet.services[each[0]].service_s * each[1], each[0])):
        for at, parts in enumerate(gpus):
            if len(parts) == fleet.hp_per_gpu or any(index == unit[0] for index, _ in parts) or (parts, unit) in tried:
                continue
            if can((*parts, unit)):
                gpus[at] = (*parts, unit)
                break
            tried.add((parts, unit))
        else:
            gpus.append((unit,))
    return tuple(gpus)


def _poured(fleet: Fleet, most: dict[int, float], can: Callable[[Parts], bool]) -> tuple[Parts, ...]:
    """Fill one GPU after the other: the service with the most GPUs left first, then parts of others."""
    left = dict.fromkeys(sorted(most), 1.0)
    gpus: list[Parts] = []
    while left:
        order = sorted(left, key=lambda index: (-left[index] / most[index], index))
        parts: Parts = ((order[0], min(left[order[0]], most[order[0]])),)
        for index in order[1:]:
            if len(parts) < fleet.hp_per_gpu and (part := _largest(parts, index, left[index], can)):
                parts = (*parts, (index, part))
        for index, part in parts:
            left[index] -= part
            if left[index] <= _LEAST_PART:
                del left[index]
        gpus.append(parts)
    return _exactly(gpus)


def _largest(parts: Parts, index: int, most: float, can: Callable[[Parts], bool]) -> float:
    """Return the largest part of a service that fits beside others; 0 if that is less than a fiftieth of the most."""
    if can((*parts, (index, most))):
        return most
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if can((*parts, (index, middle))):
            low = middle
        else:
            high = middle
    return low if low >= most / 50 else 0.0


def _exactly(gpus: Sequence[Parts]) -> tuple[Parts, ...]:
    """Scale the parts of each service to the sum 1, which rounding may have changed in the last digits."""
    sums: dict[int, float] = {}
    for index, part in (each for parts in gpus for each in parts):
        sums[index] = sums.get(index, 0.0) + part
    return tuple(tuple((index, part / sums[index]) for index, part in parts) for parts in gpus)


def _least_movement(parts: Sequence[Parts], before: Sequence[Parts]) -> tuple[Parts, ...]:
    """Give each set of services the GPU that runs most of it already; leave no GPU number out."""
    places: dict[int, Parts] = {}
    open_places = list(range(len(parts)))
    left = list(parts)
    wished = sorted(
        (
            (-len({index for index, _ in each} & {index for index, _ in before[place]}), place, at)
            for at, each in enumerate(parts)
            for place in open_places
            if place < len(before)
        ),
    )
    used: set[int] = set()
    for overlap, place, at in wished:
        if overlap < 0 and place not in places and at not in used:
            places[place] = left[at]
            used.add(at)
    rest = iter([each for at, each in enumerate(left) if at not in used])
    return tuple(places[place] if place in places else next(rest) for place in open_places)
