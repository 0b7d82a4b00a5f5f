"""Waiting in tests: for a condition, with a deadline, and never for a fixed time."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

Value = TypeVar("Value")
Event = str | Callable[[], str]

DEADLINE = 200.0
""" Seconds after which a test fails: at least ten times what tests wait for on two cores with nothing beside. """
_FIRST_PAUSE, _LAST_PAUSE = 0.001, 0.05
_SHARE = 0.05
""" Each pause is this part of the time waited so far: fast events are seen at once, slow ones need few checks. """


def eventually(condition: Callable[[], Value], what: Event = "", seconds: float = DEADLINE) -> Value:
    """Return the first value of `condition` that is true.

    Args:
        condition: is called repeatedly.
        what: part of the failure's message: the event that the test waits for, or a function that finds out after the
            wait why it has not come.
        seconds: the longest wait.

    Raises:
        AssertionError: no value was true.
    """
    pauses = _pauses(seconds)
    while not (value := condition()):
        time.sleep(_next(pauses, what, value, seconds))
    return value


async def eventually_async(condition: Callable[[], Value], what: Event = "", seconds: float = DEADLINE) -> Value:
    """Do the same in an event loop, whose other tasks continue."""
    pauses = _pauses(seconds)
    while not (value := condition()):
        await asyncio.sleep(_next(pauses, what, value, seconds))
    return value


def _pauses(seconds: float) -> Iterator[float]:
    began = time.monotonic()
    while (waited := time.monotonic() - began) <= seconds:
        yield min(max(waited * _SHARE, _FIRST_PAUSE), _LAST_PAUSE)


def _next(pauses: Iterator[float], what: Event, value: object, seconds: float) -> float:
    for pause in pauses:
        return pause
    why = what() if callable(what) else what
    raise AssertionError(f"not within {seconds:.0f} s: {why or f'the last value is {value!r}'}")
