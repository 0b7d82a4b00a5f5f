"""Which part of a GPU's time each best-effort slot is due, from requests, limits and demands.

A slot that wants the GPU gets at least its request of the time that there is, and at most its limit. What nobody
requested, and what slots leave unused, goes to the slots that want it in proportion to their requests. Slots without a
request share equally what the requests leave, and get 0.01 each at least. Requests of more than 1 in all are scaled.

Refused: weights without a unit. Whether a weight of 2 is a tenth of the GPU or two thirds depends on all other tenants.
"""

from collections.abc import Mapping
from typing import NamedTuple

LEAST = 0.01
""" What a slot without a request has at least, as a part of the GPU's time. """
SCALED_ABOVE = 1 + 1e-9
""" Requests that add up to more than this are scaled; the sum of fractions may be a little above 1. """


class Claim(NamedTuple):
    """What a slot may claim of a GPU's time.

    Args:
        request: the part of the time that it is sure to get, 0 to 1; 0: none.
        limit: the part of the time that it gets at most, 0 to 1.
        wants: whether it has work.
    """

    request: float = 0.0
    limit: float = 1.0
    wants: bool = True


def requests(claims: Mapping[str, Claim]) -> dict[str, float]:
    """Return the request of each slot, where those without one share what the others leave; the sum may be over 1."""
    without = sum(not claim.request for claim in claims.values())
    left = max(0.0, 1.0 - sum(claim.request for claim in claims.values()))
    return {name: claim.request or max(left / without, LEAST) for name, claim in claims.items()}


def due(claims: Mapping[str, Claim], time: float = 1.0) -> dict[str, float]:
    """Return the part of the GPU's time that each slot is due.

    Args:
        claims: all slots of the GPU that have clients, by name.
        time: the part of the GPU's time that there is to divide, 0 to 1.
    """
    shares = dict.fromkeys(claims, 0.0)
    weights = {name: each for name, each in requests(claims).items() if claims[name].wants}
    while weights:
        level = time / sum(weights.values())
        limited = [name for name, weight in weights.items() if weight * level >= claims[name].limit]
        for name in limited or weights:
            shares[name] = claims[name].limit if limited else weights[name] * level
            time -= shares[name] if limited else 0.0
        if not limited:
            break
        weights = {name: weight for name, weight in weights.items() if name not in limited}
        time = max(0.0, time)
    return shares
