"""Decides the next step of a rotation from the state and from the observed cluster.

An authority is a certificate authority (CA). The leaf is the webhook's server certificate, which an authority signs.
The functions keep no state between calls. They are pure, except that they generate keys. Each step is one write of the
Secret. The process can end after any step, and another process continues from the Secret. The phases of a rotation:

    at rest     the authority has signed the leaf
    spreading   a coming authority was added; waits until every API server trusts it
    exchanged   the new authority has signed a new leaf, and the old authority is retired;
                waits until every replica serves the new leaf
    at rest     the retired authority is dropped

A leaf that no API server accepts is replaced at once. Waiting would protect nothing, because connections fail already.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from orion.operator.certificates.issuing import Certificate, new_authority, new_leaf
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State


class Phase(StrEnum):
    """The phase of a rotation."""

    BROKEN = "broken"
    AT_REST = "at-rest"
    SPREADING = "spreading"
    EXCHANGED = "exchanged"


@dataclass(frozen=True)
class Seen:
    """The observed cluster.

    Args:
        spread: for how long every caBundle has held exactly the state's authorities, without a change; None: a caBundle
            does not hold them.
        shown: for how long every replica has served the state's leaf, without a change; None: this is not so, or is not
            known.
        trusted: all authorities in the caBundles, including those that are not in the state.
        missing: a sentence that says why `spread` or `shown` is None.
    """

    spread: timedelta | None = None
    shown: timedelta | None = None
    trusted: tuple[Certificate, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class Step:
    """One step of a rotation.

    Args:
        state: the new content of the Secret; None: write nothing now.
        why: a sentence that gives the reason.
    """

    state: State | None
    why: str


def phase(state: State, now: datetime) -> Phase:
    """Return the phase of the rotation."""
    if not state.serves(now):
        return Phase.BROKEN
    if state.coming is not None:
        return Phase.SPREADING
    return Phase.EXCHANGED if state.retired else Phase.AT_REST


def begin(state: State, now: datetime, settings: CertificateSettings, why: str) -> Step:
    """Return the first step of a rotation. The step writes nothing if a rotation has already begun."""
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
        return begin(state, now, settings, "the current one cannot sign")
    if authority.ends - now <= settings.authority_renew_before:
        return begin(state, now, settings, f"the current one ends at {authority.ends:%Y-%m-%d %H:%M} UTC")
    if not authority.signed(state.leaf):
        # A person has changed the Secret. As with a new authority, every API server must trust it before it signs.
        return _exchange(state, authority, seen, now, settings)
    if why := _leaf_is_due(state.leaf, now, settings):
        return Step(replace(state, leaf=_leaf(authority, now, settings)), f"the leaf is renewed: {why}")
    return _retire(state, seen, now, settings)


def _recover(state: State, seen: Seen, now: datetime, settings: CertificateSettings) -> Step:
    """Make a leaf at once. Authorities that are trusted now stay trusted: replicas may still serve their leaves."""
    for authority in (state.authority, state.coming):
        if authority is not None and authority.can_sign(now):
            break
    else:
        authority = _authority(now, settings)
    others = [each for each in (*state.trusted, *seen.trusted) if each.fingerprint != authority.fingerprint]
    retired = {each.fingerprint: each.without_key() for each in others if each.holds(now)}
    # A coming authority that is not chosen here is retired with the others. The next pass begins a rotation if needed.
    after = State(_leaf(authority, now, settings), authority, None, tuple(retired.values()))
    what = "the Secret held no leaf" if state.leaf is None else "no API server could accept the leaf"
    by = "" if authority == state.authority else ", signed by a new authority"
    return Step(after, f"{what}; a new leaf is made{by}")


def _exchange(state: State, coming: Certificate, seen: Seen, now: datetime, settings: CertificateSettings) -> Step:
    if not coming.can_sign(now):
        return Step(replace(state, coming=None), "the coming authority cannot sign and is dropped")
    if seen.spread is None:
        return Step(None, f"the coming authority is not in every caBundle: {seen.missing}")
    if seen.spread < settings.spread:
        return Step(None, "every caBundle holds the coming authority; waiting until every API server has read it")
    before = tuple(each for each in replace(state, coming=None).trusted if each.fingerprint != coming.fingerprint)
    after = State(_leaf(coming, now, settings), coming, None, before)
    return Step(after, "every API server trusts the coming authority: it signs a new leaf")


def _retire(state: State, seen: Seen, now: datetime, settings: CertificateSettings) -> Step:
    if not state.retired:
        return Step(None, "at rest")
    kept = tuple(each for each in state.retired if each.holds(now))
    if len(kept) < len(state.retired):
        return Step(replace(state, retired=kept), "expired authorities are dropped")
    if seen.shown is None:
        return Step(None, f"the retired authority is kept: {seen.missing}")
    if seen.shown < settings.settle:
        return Step(None, "every replica serves the new leaf; waiting for replicas that may just be starting")
    return Step(replace(state, retired=()), "every replica serves the new leaf: the retired authority is dropped")


def _leaf_is_due(leaf: Certificate, now: datetime, settings: CertificateSettings) -> str:
    """Return why a valid leaf must be replaced; empty: it need not be."""
    if leaf.ends - now <= settings.leaf_renew_before:
        return f"it ends at {leaf.ends:%Y-%m-%d %H:%M} UTC"
    lacking = sorted(set(settings.leaf_names) - leaf.names)
    return f"it is not for {', '.join(lacking)}" if lacking else ""


def _authority(now: datetime, settings: CertificateSettings) -> Certificate:
    return new_authority(now, settings.authority_validity, settings.backdated)


def _leaf(authority: Certificate, now: datetime, settings: CertificateSettings) -> Certificate:
    return new_leaf(authority, settings.leaf_names, now, settings.leaf_validity, settings.backdated)
