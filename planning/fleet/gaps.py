"""Free time of GPUs while jobs are placed one after the other. One best-effort job runs on a GPU at a time."""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

from .fleets import TOLERANCE_H
from .supply import Supply, Track

Gap = tuple[float, float]


@dataclass(frozen=True)
class Run:
    """A job on some GPUs for a time.

    Attributes:
        gpus: the GPUs, all held from the begin to the end.
        from_h: the begin.
        to_h: the end.
        lost_h: time at the begin without progress, because the job moves here.
    """

    gpus: tuple[int, ...]
    from_h: float
    to_h: float
    lost_h: float = 0.0


class Gaps:
    """The GPUs of a supply, and when a best-effort job holds each of them."""

    def __init__(self, supply: Supply) -> None:
        self.supply = supply
        self._held: list[list[Gap]] = [[] for _ in range(supply.gpus)]

    def hold(self, run: Run) -> None:
        """Take the GPUs of a run out of the free time."""
        for gpu in run.gpus:
            insort(self._held[gpu], (run.from_h, run.to_h))

    def free(self, gpus: tuple[int, ...], track: Track, from_h: float, to_h: float) -> Iterator[Gap]:
        """Yield the times at which all of some GPUs are free and have room for the track's memory, ascending."""
        taken = self._held[gpus[0]] if len(gpus) == 1 else sorted(each for gpu in gpus for each in self._held[gpu])
        if not all(track.is_open):
            bounds = track.bounds_h
            shut = [(bounds[at], bounds[at + 1]) for at, is_open in enumerate(track.is_open) if not is_open]
            taken = sorted([*taken, *shut])
        now_h = from_h
        for begin_h, end_h in taken:
            if begin_h >= to_h:
                break
            if begin_h > now_h + TOLERANCE_H:
                yield now_h, begin_h
            now_h = max(now_h, end_h)
        if now_h < to_h - TOLERANCE_H:
            yield now_h, to_h
