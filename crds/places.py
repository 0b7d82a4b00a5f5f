"""How claims spread over GPUs, although the scheduler takes the first GPU that fits and scores no GPUs.

Each GPU has the capacity `spread`. A claim offers the scheduler alternatives (`firstAvailable`), which differ only in
the part of that capacity that they ask for: a little more than a half of it, than a quarter, and so on. The parts are
the *places* of a GPU. The scheduler tries an alternative on all GPUs of a node before it tries the next one, and
prefers nodes where an early alternative fits. Two tenants cannot have the same place of a GPU, so the second tenant
goes to another GPU while one is empty. The last alternative asks for no place: a claim never waits for one.

A place says what was free when its tenant came. When tenants leave, their places are free, so the number of tenants is
not known exactly.

Rejected:

* a capacity of 1 for each place. The scheduler counts each of them in each try, the claims' status lists them all, and
  a GPU has at most 32 attributes and capacities. The parts of one capacity are free and taken in the same way.
* a slice that lists the emptiest GPU first. It costs a write for each pod, which wakes all pods that wait for a GPU,
  and pods that come at the same time would all see the same order.
* alternatives for each request of a claim: if the last request does not fit, the scheduler tries all combinations.
"""

from collections.abc import Mapping
from typing import Any

SPREAD = "spread"
""" The capacity of a GPU whose parts are its places. """
PLACES_MAX = 7
""" The places of a GPU. The API server allows eight alternatives, and the last asks for no place. """
PLACES = PLACES_MAX
""" For how many places the webhook lets a pod's claim ask. """
WHOLE = 2**PLACES_MAX - 1
""" The value of the capacity: the sum of all parts. """
PARTS = tuple(2**exponent for exponent in reversed(range(PLACES_MAX)))
""" What a claim asks for to have the first place, the second, and so on. """


def alternatives(exactly: Mapping[str, Any], places: int) -> list[dict[str, Any]]:
    """Return the alternatives of a request, in the order in which the scheduler tries them.

    Args:
        exactly: what the request asks for.
        places: for how many places it asks first.
    """
    capacity = exactly["capacity"]["requests"]
    found = []
    for number, part in enumerate(PARTS[:places], start=1):
        amounts = {"capacity": {"requests": {**capacity, SPREAD: str(part)}}}
        found.append({"name": f"place-{number}", **exactly, **amounts})
    return [*found, {"name": "any", **exactly}]
