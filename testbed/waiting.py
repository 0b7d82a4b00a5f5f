"""Waiting for what runs on this machine: for a condition, with a deadline, and not for what has ended by itself."""

import time
from collections.abc import Callable

# Seconds. A start takes 5 on two idle cores; tests that share them with others may see ten times that.
DEADLINE = 90.0
POLL = 0.05


class Failed(Exception):
    """What was waited for did not come, or has ended; the text says which, why, and where more is to be read."""


def wait_until(
    condition: Callable[[], object],
    otherwise: str,
    fault: Callable[[], str] = lambda: "",
    more: str = "",
    patience: float = DEADLINE,
) -> None:
    """Return when a condition is met.

    Args:
        condition: asked again and again.
        otherwise: what to say if it is not in time.
        fault: tells how something that it takes has ended by itself, or an empty text.
        more: where people find out more, to be said behind it.
        patience: seconds.

    Raises:
        Failed: something has ended, or it was not in time.
    """
    deadline = time.monotonic() + patience
    while not condition():
        reason = fault()
        if not reason and time.monotonic() > deadline:
            reason = f"{otherwise} within {patience:.0f} s{more and f'; {more}'}"
        if reason:
            raise Failed(reason)
        time.sleep(POLL)
