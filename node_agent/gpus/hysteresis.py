"""When a GPU that was in trouble counts as healthy again: later each time, if it keeps coming back into trouble.

Pods are sent where a GPU is healthy, so a verdict that follows each look would send them to a GPU that fails every
minute, one after the other. And a verdict that never becomes good again, as other plugins have it, costs a GPU for
every passing error until somebody restarts a pod. So:

    bad     at once for what is certain (lost, an Xid); after `doubts` looks in a row for what may have been a slip
    good    after `looks` good looks in a row, over at least the hold time
    hold    doubles with each relapse, up to `hold_max_s`; halves for each `forget_s` that the GPU was healthy

A state machine of plain numbers, without clocks or threads.
"""

from dataclasses import dataclass

from orion.node_agent.gpus.interface import HEALTHY, Health


@dataclass(frozen=True)
class Patience:
    """How long to wait for what; seconds."""

    doubts: int = 3
    looks: int = 5
    hold_s: float = 10.0
    hold_max_s: float = 600.0
    forget_s: float = 600.0


class Hysteresis:
    """The verdict on one GPU.

    Args:
        patience: how long to wait for what.
        verdict: to begin with.
    """

    def __init__(self, patience: Patience, verdict: Health = HEALTHY) -> None:
        self._patience = patience
        self.verdict = verdict
        self._hold_s = patience.hold_s
        self._doubts = 0
        self._good = 0
        self._good_since = 0.0
        """ When the good looks in a row began. """
        self._healthy_since = float("-inf")

    def look(self, report: Health, now: float) -> bool:
        """Take in what a look found; return whether the verdict has changed.

        Args:
            report: of this look.
            now: seconds, monotonic.
        """
        before = self.verdict
        if report.healthy:
            self._take_good(now)
        else:
            self._take_bad(report, now)
        return self.verdict != before

    def _take_good(self, now: float) -> None:
        self._doubts = 0
        if self._good == 0:
            self._good_since = now
        self._good += 1
        long_enough = now - self._good_since >= self._hold_s
        if not self.verdict.healthy and self._good >= self._patience.looks and long_enough:
            self.verdict, self._healthy_since = HEALTHY, now

    def _take_bad(self, report: Health, now: float) -> None:
        self._good = 0
        self._doubts += 1
        if not self.verdict.healthy:
            self.verdict = report  # the latest word is what people can act upon
        elif report.critical or self._doubts >= self._patience.doubts:
            self.verdict = report
            self._lengthen(now)

    def _lengthen(self, now: float) -> None:
        """Hold it for longer than last time, unless it was healthy for long meanwhile."""
        if self._healthy_since == float("-inf"):
            return  # its first trouble
        forgotten = int((now - self._healthy_since) / self._patience.forget_s)
        doubled = min(self._hold_s * 2, self._patience.hold_max_s)
        self._hold_s = max(self._patience.hold_s, doubled / 2.0 ** min(forgotten, 64))
