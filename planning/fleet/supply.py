"""What services leave for best-effort work: the speed beneath them and the free memory, by GPU and span."""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ..sharing.harvest import Tenant, speed_beneath, speed_together
from .fleets import TOLERANCE_H, Fleet
from .layout import Layout, Parts
from .waiting import Load, busy, busy_periods


@dataclass(frozen=True)
class Track:
    """How fast a job runs on some GPUs over time.

    Attributes:
        bounds_h: the spans' bounds.
        speeds: the job's speed in each span, 0 to 1.
        is_open: whether the job's memory fits in the span.
        done_h: the hours of work that a job has done at each bound if it runs from the first bound on.
    """

    bounds_h: tuple[float, ...]
    speeds: tuple[float, ...]
    is_open: tuple[bool, ...]
    done_h: tuple[float, ...]

    def work(self, from_h: float, to_h: float) -> float:
        """Return the hours of work between two times."""
        return self._until(to_h) - self._until(from_h)

    def end_h(self, from_h: float, work_h: float) -> float:
        """Return when work that begins at a time is done; infinite if the spans end before."""
        wanted = self._until(from_h) + work_h - TOLERANCE_H
        if wanted > self.done_h[-1]:
            return float("inf")
        at = min(max(bisect_right(self.done_h, wanted) - 1, 0), len(self.speeds) - 1)
        while at + 1 < len(self.speeds) and self.speeds[at] <= 0:
            at += 1
        found = self.bounds_h[at] + max(0.0, wanted + TOLERANCE_H - self.done_h[at]) / self.speeds[at]
        return max(found, from_h)

    def _until(self, at_h: float) -> float:
        at = min(max(bisect_right(self.bounds_h, at_h) - 1, 0), len(self.speeds) - 1)
        return self.done_h[at] + (at_h - self.bounds_h[at]) * self.speeds[at]


class Supply:
    """The GPUs of a plan as best-effort work sees them.

    Args:
        fleet: the services' rates and memory, and the cost of a switch.
        layout: the services of each GPU.
        gpus: the number of GPUs; at least the layout's.
        end_h: the last bound; beyond the plan's end the last day repeats.
    """

    def __init__(self, fleet: Fleet, layout: Layout, gpus: int, end_h: float | None = None) -> None:
        self.fleet, self.layout, self.gpus = fleet, layout, gpus
        speeds = [[_speed(fleet, parts, at_h) for parts in _padded(span, gpus)]
                  for at_h, span in zip(layout.bounds_h, layout.parts, strict=False)]  # fmt: skip
        free_gb = [[_free_gb(fleet, parts) for parts in _padded(span, gpus)] for span in layout.parts]
        self.bounds_h, order = _repeated(layout.bounds_h, end_h or fleet.hours)
        self.speeds = tuple(zip(*(speeds[at] for at in order), strict=True))
        self.free_gb = tuple(zip(*(free_gb[at] for at in order), strict=True))
        self._tracks: dict[tuple[tuple[int, ...], float], Track] = {}

    def track(self, gpus: tuple[int, ...], memory_gb: float) -> Track:
        """Return how a job runs on some GPUs together: as fast as on the slowest."""
        key = (gpus, memory_gb)
        if key not in self._tracks:
            self._tracks[key] = self._track(gpus, memory_gb)
        return self._tracks[key]

    def _track(self, gpus: tuple[int, ...], memory_gb: float) -> Track:
        spans = range(len(self.bounds_h) - 1)
        is_open = tuple(all(self.free_gb[gpu][at] >= memory_gb - 1e-9 for gpu in gpus) for at in spans)
        speeds = tuple(speed_together(self.speeds[gpu][at] for gpu in gpus) if is_open[at] else 0.0 for at in spans)
        done = [0.0]
        for at in spans:
            done.append(done[-1] + speeds[at] * (self.bounds_h[at + 1] - self.bounds_h[at]))
        return Track(self.bounds_h, speeds, is_open, tuple(done))


def loads(fleet: Fleet, parts: Parts, at_h: float) -> list[Load]:
    """Return the load of each service on a GPU at a time."""
    return [(fleet.services[index].rate(at_h) * part, fleet.services[index].service_s) for index, part in parts]


def _speed(fleet: Fleet, parts: Parts, at_h: float) -> float:
    here = loads(fleet, parts, at_h)
    return speed_beneath(Tenant(busy(here), busy_periods(here), fleet.switch_s)) if here else 1.0


def _free_gb(fleet: Fleet, parts: Parts) -> float:
    if not all(fleet.services[index].has_be for index, _ in parts):
        return -1.0  # not even work without memory runs here
    return fleet.memory_gb - sum(fleet.services[index].memory_gb for index, _ in parts)


def _padded(span: tuple[Parts, ...], gpus: int) -> list[Parts]:
    return [*span, *[()] * (gpus - len(span))]


def _repeated(bounds_h: Sequence[float], end_h: float) -> tuple[tuple[float, ...], list[int]]:
    """Return the bounds up to a later end, and which of the given spans each new span repeats."""
    bounds, order = list(bounds_h), list(range(len(bounds_h) - 1))
    length_h = min(24.0, bounds_h[-1])
    from_h = bounds_h[-1] - length_h
    day = [(max(begin_h, from_h), end, at)
           for at, (begin_h, end) in enumerate(itertools.pairwise(bounds_h)) if end > from_h]  # fmt: skip
    shift_h = length_h
    while bounds[-1] < end_h - TOLERANCE_H:
        for _, until_h, at in day:
            if bounds[-1] < end_h - TOLERANCE_H:
                bounds.append(min(until_h + shift_h, end_h))
                order.append(at)
        shift_h += length_h
    return tuple(bounds), order
