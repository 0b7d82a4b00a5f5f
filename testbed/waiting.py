"""Waits for a condition, with a deadline, and stops early if a process that it depends on has ended."""

import time
from collections.abc import Callable

from testbed.errors import Failed

# Seconds. A start takes 5 on two idle cores; tests that share the cores may need ten times that.
DEADLINE = 90.0
POLL = 0.05


def wait_until(
    condition: Callable[[], object],
    otherwise: str,
    fault: Callable[[], str] = lambda: "",
    more: str = "",
    patience: float = DEADLINE,
) -> None:
    """Return when a condition is met.

    Args:
        condition: polled.
        otherwise: the error if the deadline passes.
        fault: returns how a required process ended unexpectedly, or an empty text.
        more: where to find more information; appended to the error.
        patience: seconds.

    Raises:
        Failed: a process has ended, or the deadline has passed.
    """
    deadline = time.monotonic() + patience
    while not condition():
        reason = fault()
        if not reason and time.monotonic() > deadline:
            reason = f"{otherwise} within {patience:.0f} s{more and f'; {more}'}"
        if reason:
            raise Failed(reason)
        time.sleep(POLL)
