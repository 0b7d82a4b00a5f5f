"""The next step of a rotation: one pure function of the state and of what was seen, but for the keys that it makes.

It holds nothing between two calls. Every step is one write of the Secret, and every state that a step leads to is one
that may last: the process may end there, and another go on.

    at rest     leaf by the authority
    spreading   + a coming authority          waits until every API server trusts it
    exchanged   leaf by it, the other retired waits until every replica shows the leaf
    at rest     the retired one dropped

A leaf that nobody takes any more is replaced at once, without the waits: what they guard is lost already.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from orion.operator.certificates.issuing import Certificate, new_authority, new_leaf
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State


class Phase(StrEnum):
    """Where a rotation is."""

    BROKEN = "broken"
    AT_REST = "at-rest"
    SPREADING = "spreading"
    EXCHANGED = "exchanged"


@dataclass(frozen=True)
class Seen:
    """What was seen of the cluster; times are how long it has been so without a break.

    Args:
        spread: since every caBundle holds exactly the state's authorities; None: one does not.
        shown: since every replica shows the state's leaf; None: one does not.
        trusted: what caBundles hold, ours or not.
        missing: why `spread` or `shown` is None, as a sentence.
    """

    spread: timedelta | None = None
    shown: timedelta | None = None
    trusted: tuple[Certificate, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Step:
    """What to do.

    Args:
        state: what the Secret is to hold; None: nothing is to be written now.
        why: a sentence.
    """

    state: State | None
    why: str


def phase(state: State, now: datetime) -> Phase:
    """Return where the rotation is."""
    if not state.serves(now):
        return Phase.BROKEN
    if state.coming is not None:
        return Phase.SPREADING
    return Phase.EXCHANGED if state.retired else Phase.AT_REST


def begin(state: State, now: datetime, settings: CertificateSettings, why: str) -> Step:
    """Return the first step of a rotation; none if one is on its way."""
    if state.coming is not None:
        return Step(None, "a new authority is being spread already")
    return Step(replace(state, coming=_authority(now, settings)), f"a new authority is made: {why}")


def decide(state: State, seen: Seen, now: datetime, settings: CertificateSettings) -> Step:
    """Return the next step."""
    if state.leaf is None or not state.serves(now):
        return _recover(state, seen, now, settings)
    if state.coming is not None:
        return _exchange(state, state.coming, seen, now, settings)
    authority = state.authority
    if authority is None or not authority.can_sign(now):
        return begin(state, now, settings, "the present one cannot sign")
    if authority.ends - now <= settings.authority_renew_before:
        return begin(state, now, settings, f"the present one ends at {authority.ends:%Y-%m-%d %H:%M} UTC")
    if not authority.signed(state.leaf):  # somebody has changed the Secret by hand: trusted first, as any new one
        return _exchange(state, authority, seen, now, settings)
    if why := _leaf_is_due(state.leaf, now, settings):
        return Step(replace(state, leaf=_leaf(authority, now, settings)), f"the leaf is renewed: {why}")
    return _retire(state, seen, now, settings)


def _recover(state: State, seen: Seen, now: datetime, settings: CertificateSettings) -> Step:
    """Make a leaf at once; authorities that are trusted now stay so, for replicas may still show their leaves."""
    for authority in (state.authority, state.coming):
        if authority is not None and authority.can_sign(now):
            break
    else:
        authority = _authority(now, settings)
    others = [each for each in (*state.trusted, *seen.trusted) if each.fingerprint != authority.fingerprint]
    retired = {each.fingerprint: each.without_key() for each in others if each.holds(now)}
    # A coming authority that did not become the present one is retired with the rest; one begins again if need be.
    after = State(_leaf(authority, now, settings), authority, None, tuple(retired.values()))
    what = "there was no leaf" if state.leaf is None else "nobody could take the leaf"
    return Step(after, f"{what}; a new one is made" + ("" if authority == state.authority else ", by a new authority"))


def _exchange(state: State, coming: Certificate, seen: Seen, now: datetime, settings: CertificateSettings) -> Step:
    if not coming.can_sign(now):
        return Step(replace(state, coming=None), "the coming authority cannot sign and is dropped")
    if seen.spread is None:
        return Step(None, f"the coming authority is not in every caBundle: {seen.missing}")
    if seen.spread < settings.spread:
        return Step(None, "every caBundle holds the coming authority; waiting until every API server has seen it")
    before = tuple(each for each in replace(state, coming=None).trusted if each.fingerprint != coming.fingerprint)
    after = State(_leaf(coming, now, settings), coming, None, before)
    return Step(after, "the coming authority is trusted everywhere: it signs a new leaf")


def _retire(state: State, seen: Seen, now: datetime, settings: CertificateSettings) -> Step:
    if not state.retired:
        return Step(None, "at rest")
    # One that has ended can vouch for nothing.
    kept = tuple(each for each in state.retired if each.holds(now))
    if len(kept) < len(state.retired):
        return Step(replace(state, retired=kept), "authorities that have ended are dropped")
    if seen.shown is None:
        return Step(None, f"the retired authority is kept: {seen.missing}")
    if seen.shown < settings.settle:
        return Step(None, "every replica shows the new leaf; waiting for replicas that may just be starting")
    return Step(replace(state, retired=()), "every replica shows the new leaf: the retired authority is dropped")


def _leaf_is_due(leaf: Certificate, now: datetime, settings: CertificateSettings) -> str:
    """Return why a leaf that serves is to be replaced, or nothing."""
    if leaf.ends - now <= settings.leaf_renew_before:
        return f"it ends at {leaf.ends:%Y-%m-%d %H:%M} UTC"
    lacking = sorted(set(settings.leaf_names) - leaf.names)
    return f"it is not for {', '.join(lacking)}" if lacking else ""


def _authority(now: datetime, settings: CertificateSettings) -> Certificate:
    return new_authority(now, settings.authority_validity, settings.backdated)


def _leaf(authority: Certificate, now: datetime, settings: CertificateSettings) -> Certificate:
    return new_leaf(authority, settings.leaf_names, now, settings.leaf_validity, settings.backdated)
