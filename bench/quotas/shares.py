"""Shares of GPU time in sliding windows, from the ends of the clients' steps.

A client's time in a window is the work that it did there, divided by its rate alone. It is measured outside the hook,
and handovers count as time that nobody had. A step counts evenly from the end of the step before to its own end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orion.planning.sharing.due import Claim, due

_EACH_SECONDS = 0.05
""" Distance between two windows. """


@dataclass(frozen=True)
class Shares:
    """What one slot got in a part of a run; all values are parts of the time, 0 to 1.

    Args:
        due: what its request and limit say.
        mean: what it got over the whole part.
        seconds_95: the largest deviation from `due` of 95 % of all windows of 1 s.
        seconds_most: that of all windows of 1 s.
        tens_most: that of all windows of 10 s; None: the part is too short.
    """

    due: float
    mean: float
    seconds_95: float
    seconds_most: float
    tens_most: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def dues(clients: Sequence[Mapping[str, Any]], later: bool) -> list[float]:
    """Return what each client is due, from its fields `priority`, `request`, `limit` and `later_request`.

    All clients want all time. hp is due its request and no more than its limit; be slots divide the rest.
    """
    found, claims = {}, {}
    for number, client in enumerate(clients):
        request = client.get("later_request") if later and client.get("later_request") else client.get("request")
        limit = client.get("limit") or 1.0
        if client.get("priority") == "hp":
            found[number] = min(request or 1.0, limit)
        else:
            claims[str(number)] = Claim(request or 0.0, limit)
    rest = due(claims, 1.0 - sum(found.values()))
    return [found[number] if number in found else rest[str(number)] for number in range(len(clients))]


def time_had(ends: Sequence[Sequence[float]], alone: float, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the GPU time that a slot has had until each time ``at``, in seconds.

    Args:
        ends: the ends of the steps of each of its processes, in seconds.
        alone: steps a second of all its processes, without other slots.
        at: times in seconds.
    """
    steps = np.zeros(len(at))
    for each in ends:
        steps += np.interp(at, np.asarray(each), np.arange(len(each), dtype=float))
    return steps / alone


def of(
    had: Sequence[NDArray[np.float64]], at: NDArray[np.float64], dues_of: Sequence[float], has_hp: bool = False
) -> list[Shares]:
    """Return the shares of all slots between the first and the last time.

    If be slots are due all time, a share is a part of the time that they had together. If limits leave time over, or if
    one of the slots is hp, it is a part of the time that passed.

    Args:
        had: for each slot what `time_had` returned.
        at: times at equal distances, in seconds.
        dues_of: what each slot is due.
        has_hp: whether one of the slots is hp.
    """
    is_full = sum(dues_of) > 0.999 and not has_hp
    found = []
    for mine, each in zip(had, dues_of, strict=True):
        whole = np.sum(had, axis=0) if is_full else at
        seconds, tens = (_windows(mine, whole, at, length) for length in (1.0, 10.0))
        deviations = np.abs(seconds - each)
        found.append(
            Shares(
                due=each,
                mean=float((mine[-1] - mine[0]) / (whole[-1] - whole[0])),
                seconds_95=float(np.quantile(deviations, 0.95)),
                seconds_most=float(deviations.max()),
                tens_most=float(np.abs(tens - each).max()) if len(tens) else None,
            )
        )
    return found


def times(begin: float, end: float) -> NDArray[np.float64]:
    """Return the times at which windows begin and end, in seconds."""
    return np.arange(begin, end + _EACH_SECONDS / 2, _EACH_SECONDS)


def _windows(
    mine: NDArray[np.float64], whole: NDArray[np.float64], at: NDArray[np.float64], length: float
) -> NDArray[np.float64]:
    steps = round(length / float(at[1] - at[0]))
    if steps >= len(at):
        return np.empty(0)
    parts: NDArray[np.float64] = (mine[steps:] - mine[:-steps]) / (whole[steps:] - whole[:-steps])
    return parts
