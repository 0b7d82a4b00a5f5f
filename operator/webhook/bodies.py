"""Reads the bodies of reviews: bounded in bytes, in time and in the work of parsing them.

A refusal closes the connection, because the rest of its body has not been read. The next connection waits for its turn.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from orion.errors import Invalid
from orion.operator.listening.turns import Turns
from orion.operator.webhook.bounds import BYTES, Account, Peer, Peers

LARGE = 64 * 2**10
""" Bytes. Larger bodies get a tenth of the loop's time: while one is parsed, for up to 0.1 s, nothing else runs. """
BODY_S = 30.0
""" How long a body may take to arrive. The API server sends it at once, but on a busy machine both sides are late. It
gives up after 30 s at most by itself, and would refuse the pod if the webhook closed the connection before. """
TURN_S = 2.0
""" How long a large body may wait for its turn. """
_MOST = {b":": 30_000, b"{": 30_000, b"[": 30_000, b",": 120_000}
""" How often a body may have characters that make it slow to parse. A pod with 1,000 fields has about 1,000 colons. """
_COUNTED_AT_ONCE = 256 * 2**10


class Refused(Invalid):
    """A body is not read, or not parsed.

    Args:
        status: the HTTP status of the answer.
        what: the bound, in one word, for metrics.
        text: what is wrong, and what to do.
    """

    def __init__(self, status: int, what: str, text: str) -> None:
        super().__init__(text)
        self.status, self.what = status, what


class Bodies:
    """The bodies that are in memory.

    Args:
        peers: recognises API servers.
    """

    def __init__(self, peers: Peers) -> None:
        self.account = Account(BYTES, reserved=peers.known)
        self._turns = Turns[Peer]()
        self._large_turns = Turns[Peer](lambda took: 9 * took)

    @contextlib.asynccontextmanager
    async def read(self, http: web.Request, peer: Peer) -> AsyncIterator[bytes]:
        """Read a request's body. Its bytes count as used until the context ends.

        Raises:
            Refused: the body exceeds a bound.
        """
        length = http.content_length
        if length is None:
            raise Refused(411, "length", "the request has no Content-Length; send one")
        if length > BYTES.each:
            raise Refused(413, "size", f"a review may have {BYTES.each} bytes at most, and this one has {length}")
        if not self.account.take(peer, length):
            raise Refused(429, "bytes", f"too many bytes from {peer.address} are being handled; try again")
        try:
            yield await self._read(http, peer)
        finally:
            self.account.give_back(peer, length)

    async def _read(self, http: web.Request, peer: Peer) -> bytes:
        try:
            async with asyncio.timeout(BODY_S):
                body = await http.read()
        except TimeoutError:
            raise Refused(408, "body_time", f"the body did not arrive within {BODY_S:g} s; send it at once") from None
        if len(body) > LARGE and not peer.is_api_server:
            await _check_work(body)
        return body

    @contextlib.asynccontextmanager
    async def turn(self, peer: Peer, body: bytes) -> AsyncIterator[None]:
        """Wait until a body may be parsed. The caller must not await anything before the context ends.

        Raises:
            Refused: the body is large, and too many other large ones wait.
        """
        large = len(body) > LARGE and not peer.is_api_server
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(TURN_S if large else None):
                    await stack.enter_async_context((self._large_turns if large else self._turns).turn(peer))
            except TimeoutError:
                raise Refused(429, "large", "too many large reviews are waiting; try again") from None
            yield


async def _check_work(body: bytes) -> None:
    for character, most in _MOST.items():
        count = 0
        for first in range(0, len(body), _COUNTED_AT_ONCE):
            count += body.count(character, first, first + _COUNTED_AT_ONCE)
            await asyncio.sleep(0)
        if count > most:
            raise Refused(
                413,
                "fields",
                f"the review has {count} times the character {character.decode()}, and at most {most} are read from an "
                "unknown sender; make the pod smaller, or name the API server's network in webhook.apiServerCIDRs",
            )
