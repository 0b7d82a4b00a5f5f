"""Decides when an unhealthy GPU counts as healthy again. The more often a GPU fails, the longer this takes.

New pods get only healthy GPUs. If the verdict followed each check, pod after pod would get a GPU that fails every
minute. Other device plugins never take a bad verdict back, so a transient error costs a GPU until the plugin's pod
restarts. This module avoids both. The verdict becomes:

    bad     at once for a certain error (lost, an Xid); after `doubts` consecutive checks for a possibly transient error
    good    after `looks` consecutive good checks, over at least the hold time

The hold time doubles with each relapse, up to `hold_max_s`. It halves for each `forget_s` in which the GPU was healthy.

This module is a state machine of numbers, without clocks or threads.
"""

from dataclasses import dataclass

from orion.node_agent.gpus.interface import HEALTHY, Health


@dataclass(frozen=True)
class Patience:
    """The limits of the verdict; times in seconds."""

    doubts: int = 3
    """ A GPU becomes unhealthy after this number of consecutive checks with a possibly transient error. """

    looks: int = 5
    """ A GPU becomes healthy after this number of consecutive good checks, if they span at least the hold time. """

    hold_s: float = 10.0
    """ The first hold time. """

    hold_max_s: float = 600.0
    """ The longest hold time. """

    forget_s: float = 600.0
    """ The hold time halves after each period of this length in which the GPU was healthy. """


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
        """ When the current sequence of good checks began. """
        self._healthy_since = float("-inf")

    def look(self, report: Health, now: float) -> bool:
        """Process the result of a check; return whether the verdict has changed.

        Args:
            report: the result of this check.
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
