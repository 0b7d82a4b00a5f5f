"""Decides when an unhealthy GPU counts as healthy again: later each time, if it becomes unhealthy again and again.

Pods are sent to healthy GPUs. If the verdict followed each look, pod after pod would be sent to a GPU that fails every
minute. If the verdict never became good again, as in other device plugins, each transient error would cost a GPU until
a restart of that plugin's pod. So:

    bad     at once for a certain error (lost, an Xid); after `doubts` consecutive looks for a possibly transient error
    good    after `looks` consecutive good looks, over at least the hold time
    hold    doubles with each relapse, up to `hold_max_s`; halves for each `forget_s` in which the GPU was healthy

This module is a state machine of numbers, without clocks or threads.
"""

from dataclasses import dataclass

from orion.node_agent.gpus.interface import HEALTHY, Health


@dataclass(frozen=True)
class Patience:
    """The limits of the verdict; times in seconds."""

    doubts: int = 3
    looks: int = 5
    hold_s: float = 10.0
    hold_max_s: float = 600.0
    forget_s: float = 600.0


class Hysteresis:
    """The verdict on one GPU.

    Args:
        patience: the limits.
        verdict: the first verdict.
    """

    def __init__(self, patience: Patience, verdict: Health = HEALTHY) -> None:
        self._patience = patience
        self.verdict = verdict
        self._hold_s = patience.hold_s
        self._doubts = 0
        self._good = 0
        self._good_since = 0.0
        """ When the current sequence of good looks began. """
        self._healthy_since = float("-inf")

    def look(self, report: Health, now: float) -> bool:
        """Process the result of a look; return whether the verdict has changed.

        Args:
            report: the result of this look.
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
            self.verdict = report  # people need the latest error
        elif report.critical or self._doubts >= self._patience.doubts:
            self.verdict = report
            self._lengthen(now)

    def _lengthen(self, now: float) -> None:
        """Double the hold time, and halve it for each `forget_s` in which the GPU was healthy."""
        if self._healthy_since == float("-inf"):
            return  # the first error
        forgotten = int((now - self._healthy_since) / self._patience.forget_s)
        doubled = min(self._hold_s * 2, self._patience.hold_max_s)
        self._hold_s = max(self._patience.hold_s, doubled / 2.0 ** min(forgotten, 64))
