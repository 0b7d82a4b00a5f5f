"""Abuses a webhook as pods could that reach its port, for `webhook_abuse`.

    python -m measurements.cluster.webhook_abusers KIND ADDRESS PORT NICENESS

Each abuser is a process without real-time priority. With niceness 19 it takes only time that nobody else needs: in a
cluster, abusers run on other machines. It sends from its own loopback address, so the webhook sees another peer. It
prints a line when it begins, and runs until it is ended.
"""

import asyncio
import contextlib
import os
import ssl
import sys
from collections.abc import Awaitable, Callable

LARGEST = 8 * 2**20
SLOW_CONNECTIONS = 64
FULL_CONNECTIONS = 4
_HEAD = (
    b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",'
    b'"namespace":"team-0","resource":{"version":"v1","resource":"pods"},"object":{"metadata":{"annotations":{'
)
_TAIL = b'}},"spec":{"containers":[]}}}}'


def text_body() -> bytes:
    """Return a valid review of the largest size, which is one long text."""
    return _HEAD + b'"a":"' + b"x" * (LARGEST - len(_HEAD) - len(_TAIL) - 6) + b'"' + _TAIL


def fields_body() -> bytes:
    """Return a valid review of the largest size with as many fields as the webhook reads: the slowest to parse."""
    fields = b",".join(b'"f%d":"%s"' % (number, b"x" * 265) for number in range(29_900))
    return _HEAD + fields[: LARGEST - len(_HEAD) - len(_TAIL)] + _TAIL


def lists_body() -> bytes:
    """Return a review of the largest size that takes more than a second to parse."""
    return _HEAD + b'"a":[' + b"[]," * ((LARGEST - len(_HEAD) - len(_TAIL)) // 3 - 4) + b"[]]" + _TAIL


class Abuser:
    """One abuser.

    Args:
        source: the loopback address from which it sends.
        port: the webhook's port on loopback.
    """

    def __init__(self, source: str, port: int) -> None:
        self._source, self._port = source, port
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a TLS connection."""
        where = {"local_addr": (self._source, 0), "ssl": self._context}
        return await asyncio.open_connection("127.0.0.1", self._port, **where)  # type: ignore[arg-type]

    async def full(self, body: bytes) -> None:
        """Send whole reviews of the largest size on one connection; open the next when the webhook closes it."""
        reader, writer = await self.connect()
        try:
            while True:
                writer.write(_request(len(body)) + body)
                head = await reader.readuntil(b"\r\n\r\n")  # the transport goes on writing meanwhile
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
        finally:
            writer.transport.abort()

    async def slow(self) -> None:
        """Send the head of a review of the largest size, and then a byte every 0.1 s."""
        _, writer = await self.connect()
        try:
            writer.write(_request(LARGEST))
            while not writer.transport.is_closing():
                writer.write(b"{")
                await asyncio.sleep(0.1)
        finally:
            writer.transport.abort()

    async def connections(self) -> None:
        """Open a TLS connection and end it."""
        _, writer = await self.connect()
        writer.transport.abort()


def _request(length: int) -> bytes:
    return b"POST /admit HTTP/1.1\r\nHost: w\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length


async def again(work: Callable[[], Awaitable[None]]) -> None:
    """Do the same for ever, whatever the webhook refuses."""
    while True:
        with contextlib.suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await work()
        await asyncio.sleep(0)


async def abuse(kind: str, source: str, port: int) -> None:
    """Abuse the webhook until cancelled."""
    abuser = Abuser(source, port)
    if kind == "slow":
        work: list[Callable[[], Awaitable[None]]] = [abuser.slow] * SLOW_CONNECTIONS
    elif kind == "connections":
        work = [abuser.connections]
    else:
        body = {"text": text_body, "fields": fields_body, "lists": lists_body}[kind]()
        work = [lambda: abuser.full(body)] * FULL_CONNECTIONS
    print("abusing", flush=True)
    await asyncio.gather(*(again(each) for each in work))


if __name__ == "__main__":
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[4]))
    asyncio.run(abuse(sys.argv[1], sys.argv[2], int(sys.argv[3])))
