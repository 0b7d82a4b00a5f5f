"""Says why a slot has the GPU time that it has, and not more: sentences for `orion explain slot`.

Pure functions of numbers of about the last ten seconds. The first sentence says what the slot asked for and got; the
others name the causes, those that take the most time away from the slot first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from orion.node_agent.sharing.usage import Parts
from orion.planning.sharing.due import SCALED_ABOVE

REQUESTS_SCALED = "RequestsScaled"
""" Also the reason of a condition of the GPU (conditions.py). """
_NOTABLE = 0.02
""" Smaller parts of the time are not named. """
_NOTABLE_DEBT_NS = 20_000_000
""" A smaller debt is the ordinary overlap of two turns. """
_IDLE_IN_TURN = 0.05
_BEHIND, _BEHIND_OF_DUE, _BEHIND_SECONDS = 0.05, 0.1, 0.05
""" A slot is behind by more than a part of the time, or by more than a part of what it was due, if that is less. It is
not behind by so many seconds: about a turn, which may fall just outside the time that is looked at. """


@dataclass(frozen=True)
class Facts:
    """What is known of a slot.

    Args:
        is_hp: whether it is an hp slot.
        clients: the number of its processes.
        request: the part of the time that it asks for; 0: none. hp: the part that hp is sure of.
        limit: the part of the time that it gets at most; 1: no limit.
        requests: the sum of the requests of all be slots of the GPU that have clients.
        parts: what happened lately.
        debt_ns: what it has used beyond what it was due.
        window: the part of the time in which its job, which uses several GPUs, has the turn on all of them; 0: none.
        unordered: the policy lets be slots run at the same time.
    """

    is_hp: bool = False
    clients: int = 1
    request: float = 0.0
    limit: float = 1.0
    requests: float = 0.0
    parts: Parts = field(default_factory=Parts)
    debt_ns: float = 0.0
    window: float = 0.0
    unordered: bool = False


@dataclass(frozen=True)
class Reason:
    """One CamelCase word for programs, and a sentence for people."""

    reason: str
    message: str


def reasons(facts: Facts) -> list[Reason]:
    """Return why a slot has the time that it has; at least one reason."""
    if not facts.clients:
        return [Reason("NoClients", "no process has joined the slot")]
    if not facts.parts.seconds:
        return [Reason("TooEarly", "its processes have joined a moment ago")]
    found = list(_of_hp(facts) if facts.is_hp else _of_be(facts))
    return found or [Reason("AsAsked", "it competes with other be slots, and has what it asked for")]


def _of_hp(facts: Facts) -> Iterator[Reason]:
    used, waited = facts.parts.slot.measured, facts.parts.slot.waited
    if facts.limit < 1 and used > facts.limit - _NOTABLE:
        yield _limited(facts)
    elif waited > _NOTABLE and facts.request < 1:
        what = f"its request is {_n(facts.request)}, so be is sure of the other {_n(1 - facts.request)}"
        yield Reason("Request", f"{what}: it waited for {_n(waited)} of the time")
    else:
        yield Reason("First", f"hp comes first, and it had work on the GPU for {_n(used)} of the time")


def _of_be(facts: Facts) -> Iterator[Reason]:
    yield from _of_rules(facts)
    yield from _of_claims(facts)
    yield from _of_demand(facts)
    if facts.debt_ns > _NOTABLE_DEBT_NS:
        what = f"work of it ran on after its turns, {facts.debt_ns / 1e9:.2f} s more than it was due"
        yield Reason("Debt", f"{what}: this debt comes off its next turns; shorter kernels avoid it")
    slot = facts.parts.slot
    if facts.parts.turns > _NOTABLE and slot.measured < slot.charged - _IDLE_IN_TURN:
        what = f"its turns took {_n(slot.charged)} of the time, and its work on the GPU only {_n(slot.measured)}"
        yield Reason("IdleInTurns", f"{what}: it launches too little to fill them")


def _of_rules(facts: Facts) -> Iterator[Reason]:
    """Return why the slots of the GPU take no turns, or why this one has the turns that it has."""
    if facts.window:
        what = f"its job uses several GPUs and has the turn on all of them together, {_n(facts.window)} of the time"
        yield Reason("JobOnSeveralGPUs", f"{what}, the least that the job is due on one of them")
    if facts.unordered:
        what = "the policy none lets all programs run at once"
        yield Reason("PolicyNone", f"{what}, as no be slot has a request or a limit")
    if facts.parts.slot.shut > _NOTABLE:
        what = f"for {_n(facts.parts.slot.shut)} of the time it got no turns, as it made no progress in earlier ones"
        yield Reason("NoProgress", f"{what}: see whether its process is stopped, or runs kernels of seconds")


def _of_demand(facts: Facts) -> Iterator[Reason]:
    """Return whether the slot wanted the time, and what hp left of it."""
    wanted, hp = facts.parts.slot.wanted, facts.parts.hp
    if wanted < 1 - _NOTABLE:
        yield Reason("NotWanted", f"it had work for the GPU in {_n(wanted)} of the time only")
    if hp > _NOTABLE:
        counted = facts.request / max(1.0, facts.requests)
        what = f": its request of {_n(counted)} is {_n(counted * (1 - hp))} of the GPU" if facts.request else ""
        yield Reason("HpFirst", f"hp took {_n(hp)} of the time, and be shares what hp leaves{what}")


def _of_claims(facts: Facts) -> Iterator[Reason]:
    """Return what requests and limits explain."""
    slot, left = facts.parts.slot, 1 - facts.parts.hp
    if facts.limit < 1 and abs(slot.due - min(facts.limit, left)) < _NOTABLE:
        yield _limited(facts)
    if facts.unordered:
        return
    if facts.parts.turns < _NOTABLE:
        yield Reason("Alone", "no other be slot competes with it, so it takes no turns")
    elif facts.requests > SCALED_ABOVE:
        counts = f", so its {_n(facts.request)} counts as {_n(facts.request / facts.requests)}"
        what = counts if facts.request else ""
        yield Reason(REQUESTS_SCALED, f"the requests of the GPU's be slots add up to {_n(facts.requests)}{what}")
    elif facts.requests and not facts.request:
        yield Reason("NoRequest", f"it has no request, so it shares what the others' requests leave: {_n(slot.due)}")
    if facts.parts.turns > _NOTABLE and facts.debt_ns <= _NOTABLE_DEBT_NS and _is_behind(facts.parts):
        what = f"it was due {_n(slot.due)} of the time and was charged {_n(slot.charged)}"
        yield Reason("Behind", f"{what}: its next turns are longer, by up to 0.1 s in all")


def _is_behind(parts: Parts) -> bool:
    notable = max(_BEHIND_OF_DUE * parts.slot.due, _BEHIND_SECONDS / parts.seconds)
    return parts.slot.charged < parts.slot.due - min(_BEHIND, notable)


def _limited(facts: Facts) -> Reason:
    return Reason("Limit", f"its limit is {_n(facts.limit)} of the GPU's time, also while the GPU is idle")


def _n(part: float) -> str:
    return f"{part:.3f}".rstrip("0").rstrip(".") if part >= 0.0005 else "0"
