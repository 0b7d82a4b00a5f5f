"""Reads and writes the content of the Secret, which holds all that is known about the webhook's certificates.

The leaf is the webhook's server certificate. An authority is a certificate authority (CA).

    tls.crt, tls.key        the leaf that the webhook serves
    ca.crt, ca.key          the authority that signs leaves
    ca-retired.crt          earlier authorities, without keys, while a replica may still serve a leaf of theirs

One Secret holds all certificates, so that the leaf and the authorities change in one atomic write. The webhook's pods
mount only tls.crt and tls.key.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from orion.errors import Unreadable
from orion.operator.certificates.issuing import Certificate, read, read_bundle, write_bundle

LEAF, AUTHORITY = ("tls.crt", "tls.key"), ("ca.crt", "ca.key")
RETIRED = "ca-retired.crt"


@dataclass(frozen=True)
class State:
    """The certificates in the Secret.

    Args:
        leaf: the certificate that the webhook serves.
        authority: the authority that signs leaves.
        retired: earlier authorities, without keys; replicas may still serve their leaves.
        problems: a sentence for each part that could not be read. Such a part is missing from the state.
    """

    leaf: Certificate | None = None
    authority: Certificate | None = None
    retired: tuple[Certificate, ...] = ()
    problems: tuple[str, ...] = field(default=(), compare=False)

    @property
    def trusted(self) -> tuple[Certificate, ...]:
        """The authorities that every caBundle must hold in this state, without keys."""
        found = [each for each in (self.authority, *self.retired) if each is not None]
        return tuple({each.fingerprint: each.without_key() for each in found}.values())

    @property
    def is_signed(self) -> bool:
        """Whether the authority has signed the leaf. A new authority has not at first."""
        return self.leaf is not None and self.authority is not None and self.authority.signed(self.leaf)

    def serves(self, now: datetime) -> bool:
        """Return whether a client that trusts this state's authorities accepts its leaf."""
        leaf = self.leaf
        if leaf is None or not leaf.key or not leaf.holds(now):
            return False
        return any(each.holds(now) and each.signed(leaf) for each in self.trusted)


def read_state(data: Mapping[str, str]) -> State:
    """Return the state in a Secret's data. Parts that cannot be read are missing; `problems` names them."""
    problems: list[str] = []

    def content(name: str) -> bytes:
        try:
            return base64.b64decode(data.get(name) or "", validate=True)
        except ValueError:
            problems.append(f"{name} is not base64")
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

    return State(pair(LEAF), pair(AUTHORITY), read_bundle(content(RETIRED)), tuple(problems))


def write_state(state: State) -> dict[str, str]:
    """Return a state as a Secret's data, to be written over the old data; RETIRED goes if it is not in the result."""
    found: dict[str, bytes] = {}
    for names, pair in ((LEAF, state.leaf), (AUTHORITY, state.authority)):
        if pair is not None:
            found |= {names[0]: pair.pem, names[1]: pair.key}
    if state.retired:
        found[RETIRED] = write_bundle(state.retired)
    return {name: base64.b64encode(content).decode() for name, content in found.items() if content}
