"""Computes the ceilings of one pair: runs the queueing model (`ceiling`) with the arrivals and speeds of each round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orion.bench.colocation.ceiling import Speeds, fraction, front, limits_for, outcomes
from orion.bench.colocation.run_files import Run
from orion.bench.colocation.summary import CeilingCurve, ClosedLoop
from orion.bench.estimates import Samples


@dataclass(frozen=True)
class Inputs:
    """The model's inputs from one round."""

    alone: Run
    capacity: float
    """hp's closed-loop rate."""
    speeds: Mapping[str, Mapping[str, Speeds]]
    """By sharing mode, then by the system under which hp and be overlapped."""


@dataclass(frozen=True)
class Curve:
    """The curve of one overlapping system in one round: hp p99 divided by that of alone, and hp + be, at each X."""

    mode: str
    kind: str
    round: int
    speeds: Speeds
    hp_p99: Samples
    total: Samples


class Modelled:
    """The model's curves, for each round, mode and overlapping system."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        self._curves = list(curves)

    def fractions(self, mode: str | None, points: Sequence[tuple[int, float, float]]) -> list[float]:
        """Divide measured points by the ceilings of their own rounds; rounds without a ceiling are left out.

        Args:
            mode: Sharing mode of the measured system.
            points: (round, hp p99 divided by that of alone, hp + be).
        """
        found = []
        for number, hp_p99, total in points:
            here = [curve for curve in self._curves if (curve.mode, curve.round) == (mode, number)]
            if here:
                found.append(fraction(hp_p99, total, _joint_front(here)))
        return found

    def curves(self) -> list[CeilingCurve]:
        """Return one front for each mode. It joins the median curves of all overlapping systems."""
        fronts = []
        for mode in dict.fromkeys(curve.mode for curve in self._curves):
            here = [curve for curve in self._curves if curve.mode == mode]
            middles = [_median([curve for curve in here if curve.kind == kind]) for kind in {one.kind for one in here}]
            p99, total = _joint_front(middles)
            loops = [ClosedLoop(system=one.kind, round=one.round, **vars(one.speeds)) for one in here]
            fronts.append(CeilingCurve(mode=mode, hp_p99=p99.tolist(), total=total.tolist(), closed_loops=loops))
        return fronts


def model(rounds: Sequence[Inputs]) -> Modelled:
    """Run the model for all rounds; a round without measured closed loops gives no curve."""
    if not rounds:
        return Modelled([])
    limits = limits_for(1 / rounds[0].capacity, rounds[0].alone.seconds / 4)
    curves: list[Curve] = []
    for each in rounds:
        alone, service = each.alone, 1 / each.capacity
        undisturbed = outcomes(alone.arrivals, service, Speeds(1.0, 1.0, 0.0), [0.0], alone.window)
        reference = undisturbed.percentile(99, alone.first)[0]
        for mode, kinds in each.speeds.items():
            for kind, speeds in kinds.items():
                result = outcomes(alone.arrivals, service, speeds, limits, alone.window)
                p99 = result.percentile(99, alone.first) / reference
                curves.append(Curve(mode, kind, alone.round, speeds, p99, result.total))
    return Modelled(curves)


def _joint_front(curves: Sequence[Curve]) -> tuple[Samples, Samples]:
    return front(np.concatenate([curve.hp_p99 for curve in curves]), np.concatenate([curve.total for curve in curves]))


def _median(curves: Sequence[Curve]) -> Curve:
    """Return the median over rounds for each limit, for the curves of one overlapping system."""
    first = curves[0]
    p99, total = (np.median([getattr(curve, name) for curve in curves], axis=0) for name in ("hp_p99", "total"))
    return Curve(first.mode, first.kind, first.round, first.speeds, np.asarray(p99), np.asarray(total))
