"""Waiting for what a control plane does in its own time."""

from collections.abc import Callable
from typing import TypeVar

from tests import waiting
from tests.waiting import DEADLINE

__all__ = ["DEADLINE", "POLL", "eventually"]

Value = TypeVar("Value")
POLL = 0.05
""" Seconds between two looks, each of which is a request to the API server. """


def eventually(condition: Callable[[], Value], deadline: float = DEADLINE, otherwise: str = "") -> Value:
    """Return the first value of `condition` that is true.

    Raises:
        AssertionError: none was within `deadline` seconds; says the last value, or `otherwise`.
    """
    return waiting.eventually(condition, otherwise, deadline, POLL)
