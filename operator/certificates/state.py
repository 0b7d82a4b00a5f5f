"""What the Secret holds. It is the whole state of a rotation: whoever reads it can go on.

    tls.crt, tls.key        the leaf that the webhook shows
    ca.crt, ca.key          the authority that signs leaves
    ca-coming.crt, .key     one that is being spread and has signed nothing yet
    ca-retired.crt          those of before, kept until no replica shows their leaves; their keys are gone

One Secret rather than one for each: the leaf and the authorities change in one write or not at all. The webhook's pods
mount only the first two of its keys.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from orion.operator.certificates.issuing import Certificate, Unreadable, read, read_bundle, write_bundle

LEAF, AUTHORITY, COMING = ("tls.crt", "tls.key"), ("ca.crt", "ca.key"), ("ca-coming.crt", "ca-coming.key")
RETIRED = "ca-retired.crt"


@dataclass(frozen=True)
class State:
    """The certificates that there are.

    Args:
        leaf: what the webhook shows.
        authority: what signs leaves.
        coming: what is about to.
        retired: what did, and may still be needed; without keys.
        problems: sentences about parts that could not be read and are therefore missing.
    """

    leaf: Certificate | None = None
    authority: Certificate | None = None
    coming: Certificate | None = None
    retired: tuple[Certificate, ...] = ()
    problems: tuple[str, ...] = field(default=(), compare=False)

    @property
    def trusted(self) -> tuple[Certificate, ...]:
        """What every caBundle holds in this state, without keys."""
        found = [each for each in (self.authority, self.coming, *self.retired) if each is not None]
        return tuple({each.fingerprint: each.without_key() for each in found}.values())

    def serves(self, now: datetime) -> bool:
        """Return whether whoever trusts this state's authorities takes its leaf."""
        leaf = self.leaf
        if leaf is None or not leaf.key or not leaf.holds(now):
            return False
        return any(each.holds(now) and each.signed(leaf) for each in self.trusted)


def read_state(data: Mapping[str, str]) -> State:
    """Return what a Secret's data hold; what cannot be read is missing, and said in `problems`."""
    problems: list[str] = []

    def content(name: str) -> bytes:
        try:
            return base64.b64decode(data.get(name) or "", validate=True)
        except ValueError:
            problems.append(f"{name} is no base64")
            return b""

    def pair(names: tuple[str, str]) -> Certificate | None:
        certificate, key = map(content, names)
        if not certificate:
            return None
        try:
            return read(certificate, key)
        except Unreadable as error:
            problems.append(f"{names[0]} and {names[1]} are no certificate with its key: {error}")
            return None

    leaf, authority, coming = pair(LEAF), pair(AUTHORITY), pair(COMING)
    return State(leaf, authority, coming, read_bundle(content(RETIRED)), tuple(problems))


def write_state(state: State) -> dict[str, str]:
    """Return a state as a Secret's data; keys that are not in it are to be absent."""
    found: dict[str, bytes] = {}
    for names, pair in ((LEAF, state.leaf), (AUTHORITY, state.authority), (COMING, state.coming)):
        if pair is not None:
            found |= {names[0]: pair.pem, names[1]: pair.key}
    if state.retired:
        found[RETIRED] = write_bundle(state.retired)
    return {name: base64.b64encode(content).decode() for name, content in found.items() if content}


OURS = frozenset((*LEAF, *AUTHORITY, *COMING, RETIRED))
""" The keys of the Secret that are ours; others' stay. """
