"""Waiting for what a control plane does in its own time: a condition with a deadline, never a sleep."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
# Seconds; ten times what the slowest of these things takes on two busy cores.
DEADLINE = 60.0
POLL = 0.05


def eventually(condition: Callable[[], Value], deadline: float = DEADLINE, otherwise: str = "") -> Value:
    """Return the first value of `condition` that is true.

    Raises:
        AssertionError: none was within `deadline` seconds; says the last value, or `otherwise`.
    """
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(otherwise or f"not within {deadline:.0f} s; last: {value!r}")
        time.sleep(POLL)
