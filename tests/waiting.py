"""Waiting in tests: for a condition, with a deadline, and never for time."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

DEADLINE = 60.0
""" Seconds after which a failure is one: ten times and more what anything takes on two busy cores. """
_FIRST_PAUSE, PAUSE = 0.001, 0.01
""" Seconds between two looks, at first and at most: what is quick is seen at once. """


def eventually(
    condition: Callable[[], Value], what: str = "", seconds: float = DEADLINE, pause: float = PAUSE
) -> Value:
    """Return the first value of `condition` that is true.

    Args:
        condition: is asked again and again.
        what: is waited for, in words; None are needed where the last value says it.
        seconds: to wait at most.
        pause: seconds between two looks, after the first few.

    Raises:
        AssertionError: no value was true.
    """
    end, now = time.monotonic() + seconds, _FIRST_PAUSE
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}" if what else f"not within {seconds:.0f} s; last: {value!r}")
        time.sleep(now)
        now = min(now * 1.5, pause)
    return value
