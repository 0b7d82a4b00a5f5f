"""Bounds what one peer, and all peers together, may use of the webhook: connections, and bytes of bodies.

Every pod of the cluster can reach the webhook, but the API servers must get answers in any case. By default API servers
send no credentials. So a peer is known by its address alone, and counts as an API server if the installation names its
network. A part of each amount, the reserve, is kept for API servers. If the installation names none, the reserve is for
peers that use little.

A peer may use no more than is still free. So one peer alone gets half, ten get an eleventh each, and as much is left
for the next. A fixed part would be too little for an API server, which needs many connections at times, or too much for
an abuser.
"""

import ipaddress
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Peer(NamedTuple):
    """Who sends."""

    address: str
    is_api_server: bool


class Peers:
    """Recognises peers by their addresses.

    Args:
        api_servers: the networks of the API servers; empty: unknown.
    """

    def __init__(self, api_servers: Sequence[Network] = ()) -> None:
        self._api_servers = tuple(api_servers)

    def at(self, address: str) -> Peer:
        """Return the peer at an IP address."""
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        return Peer(str(found), any(found in network for network in self._api_servers))

    @property
    def known(self) -> bool:
        """Whether the API servers' networks are known."""
        return bool(self._api_servers)


@dataclass(frozen=True)
class Amounts:
    """How much of something may be in use.

    Args:
        total: by all peers.
        each: by one peer that is no API server, however much is free.
        reserve: the part of `total` that is kept.
        little: a peer that uses no more than this may use the reserve, if no network of API servers is known.
    """

    total: int
    each: int
    reserve: int
    little: int


CONNECTIONS = Amounts(total=512, each=224, reserve=64, little=16)
""" `each` is enough for all mutating requests that one API server handles at a time (200 by default). Each of them may
need a connection, and the API server refuses the pod if the webhook closes it. """
WAITING = Amounts(total=1088, each=512, reserve=64, little=16)
""" Connections before their TLS handshake, which need little memory. After a stall of the webhook, or when many pods
are created at once, an API server has more of them than it uses later. `each` is about as many as get their handshake
in the 5 s after which an API server gives up a review. """
BYTES = Amounts(total=32 * 2**20, each=8 * 2**20, reserve=8 * 2**20, little=512 * 2**10)
""" Bytes of bodies. `each` is the largest review: the API server accepts pods of up to 1.5 MiB, and a review contains
the new and the old pod. """


class Account:
    """What peers use at the moment.

    Args:
        amounts: how much they may use.
        reserved: whether the reserve is only for API servers.
    """

    def __init__(self, amounts: Amounts, reserved: bool) -> None:
        self._amounts, self._reserved = amounts, reserved
        self._used: Counter[Peer] = Counter()
        self.total = 0

    def take(self, peer: Peer, amount: int) -> bool:
        """Count an amount as used, and return True; return False if the peer may not use it."""
        if not self._may(peer, amount):
            return False
        self._used[peer] += amount
        self.total += amount
        return True

    def give_back(self, peer: Peer, amount: int) -> None:
        """End the use of an amount that was taken."""
        self.total -= amount
        self._used[peer] -= amount
        if not self._used[peer]:
            del self._used[peer]

    def _may(self, peer: Peer, amount: int) -> bool:
        bounds, own = self._amounts, self._used.get(peer, 0) + amount
        free = bounds.total - self.total
        if peer.is_api_server:
            return amount <= free
        if own <= min(bounds.each, free - bounds.reserve):
            return True
        return not self._reserved and own <= bounds.little and amount <= free
