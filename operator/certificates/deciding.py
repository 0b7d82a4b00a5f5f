"""Decides the next step from the state and from the observed cluster.

An authority is a certificate authority (CA). The leaf is the webhook's server certificate, which an authority signs.
The functions keep no state between calls. They are pure, except that they generate keys. Each step is one write of the
Secret. The process can end after any step, and another process continues from the Secret. A change of the authority:

    1. The Secret gets the new authority. The old one is retired: it stays trusted, and its leaf stays in service.
    2. The caBundle holds both. After every API server has read it, the new authority signs a new leaf.
    3. The retired authority is dropped when this leaf is older than any replica needs to load it.

Nothing waits where nothing works: a leaf that no API server accepts is replaced as soon as the caBundle is written.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from orion.operator.certificates.issuing import Certificate, new_authority, new_leaf
from orion.operator.certificates.settings import CertificateSettings
from orion.operator.certificates.state import State


@dataclass(frozen=True)
class Step:
    """One step.

    Args:
        state: the new content of the Secret; None: write nothing now.
        why: a sentence that gives the reason.
    """

    state: State | None
    why: str


def check_authority(
    state: State, trusted: tuple[Certificate, ...], now: datetime, settings: CertificateSettings
) -> Step:
    """Return the step that makes a new authority, if one is due. It comes before every other step.

    Args:
        state: the content of the Secret.
        trusted: all authorities in the caBundles, including those that are not in the state.
        now: the current time.
        settings: validity periods.
    """
    authority = state.authority
    if authority is None or not authority.can_sign(now):
        # Replicas may still serve a leaf of an authority that only the caBundles know.
        known = replace(state, retired=(*state.retired, *trusted))
        return change_authority(known, now, settings, "the Secret held none that can sign")
    if authority.ends - now <= settings.authority_renew_before:
        return change_authority(state, now, settings, f"the current one ends at {authority.ends:%Y-%m-%d %H:%M} UTC")
    return Step(None, "the authority can sign")


def change_authority(state: State, now: datetime, settings: CertificateSettings, why: str) -> Step:
    """Return the step that makes a new authority and retires all others."""
    authority = new_authority(now, settings.authority_validity, settings.backdated)
    retired = tuple(each for each in state.trusted if each.holds(now))
    return Step(State(state.leaf, authority, retired), f"a new authority is made: {why}")


def check_leaf(state: State, spread: timedelta | None, now: datetime, settings: CertificateSettings) -> Step:
    """Return the step that renews the leaf or drops retired authorities, if one is due.

    Args:
        state: the content of the Secret. Its authority can sign.
        spread: for how long every caBundle has held exactly the state's authorities, without a change; None: there is
            no webhook configuration.
        now: the current time.
        settings: validity periods and waits.
    """
    leaf, authority = state.leaf, state.authority
    assert authority is not None, "see check_authority"
    if leaf is not None and state.is_signed and state.serves(now):
        if why := _leaf_is_due(leaf, now, settings):
            return _sign(state, authority, now, settings, why)
        if state.retired and now - settings.backdated - leaf.begins >= settings.drop_retired_after:
            return Step(replace(state, retired=()), "every replica has loaded the leaf: the retired authorities go")
        return Step(None, "the retired authorities stay trusted for now" if state.retired else "at rest")
    # Without a leaf in the Secret, replicas may still serve one of a retired authority, so those are worth the wait.
    accepted = state.serves(now) or (leaf is None and state.retired)
    if accepted and spread is None:
        return Step(None, "no new leaf is signed while there is no webhook configuration that trusts the new authority")
    if accepted and spread is not None and spread < settings.spread:
        return Step(None, "the caBundle holds the new authority; waiting until every API server has read it")
    why = "every API server trusts the new authority" if accepted else "the Secret held none that an API server accepts"
    return _sign(state, authority, now, settings, why)


def _leaf_is_due(leaf: Certificate, now: datetime, settings: CertificateSettings) -> str:
    """Return why a valid leaf must be replaced; empty: it need not be."""
    if leaf.ends - now <= settings.leaf_renew_before:
        return f"the old one ends at {leaf.ends:%Y-%m-%d %H:%M} UTC"
    lacking = sorted(set(settings.leaf_names) - leaf.names)
    return f"the old one is not for {', '.join(lacking)}" if lacking else ""


def _sign(state: State, authority: Certificate, now: datetime, settings: CertificateSettings, why: str) -> Step:
    leaf = new_leaf(authority, settings.leaf_names, now, settings.leaf_validity, settings.backdated)
    return Step(replace(state, leaf=leaf), f"a new leaf is signed: {why}")
