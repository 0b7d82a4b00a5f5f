"""Many agents in one process: each keeps a call to the operator open, and calls again as real ones do."""

import asyncio
import contextlib
import random
import ssl
import time
from collections.abc import AsyncIterator

from orion.api_server.requests import ApiError, ApiServer
from orion.node_pods import LENGTH_BYTES, frame
from orion.node_pods.node_pods_pb2 import Answer, Call

_AGAIN_S = (1.0, 8.0)
""" After which time an agent without a connection tries again, at random. """


class Agents:
    """The calls of all agents.

    Args:
        api: the API server, which has the operator's certificate.
        port: that of the operator, on this machine.
        tokens: one for each agent.
        least: the least pods that each agent must be sent.
    """

    def __init__(self, api: ApiServer, port: int, tokens: list[str], least: int) -> None:
        self._api, self._port, self._tokens, self._least = api, port, tokens, least
        self._context = ssl.create_default_context()
        self._known = ""
        self.notified: dict[int, float] = {}
        """ When each agent was last sent its pods. """
        self.ended = 0

    @contextlib.asynccontextmanager
    async def connected(self, nodes: int) -> AsyncIterator[None]:
        """Let the agents of so many nodes call until the block ends."""
        tasks = [asyncio.create_task(self.listen(number)) for number in range(nodes)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def listen(self, number: int) -> None:
        """Call, again and again, until cancelled."""
        while True:
            try:
                await self._call(number)
            except ssl.SSLCertVerificationError:
                await self._read_certificate()
            except (OSError, EOFError):
                pass
            self.ended += 1
            await asyncio.sleep(random.uniform(*_AGAIN_S))

    async def _read_certificate(self) -> None:
        try:
            data = (await self._api.get("/api/v1/namespaces/default/configmaps/orion-operator")).get("data") or {}
        except ApiError:
            return
        if (text := "".join(data.values())) and text != self._known:
            self._known, self._context = text, ssl.create_default_context(cadata=text)

    async def _call(self, number: int) -> None:
        own = (f"127.1.{number // 250}.{1 + number % 250}", 0)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._context, server_hostname="localhost", local_addr=own
        )
        try:
            writer.write(frame(Call(token=self._tokens[number])))
            while True:
                size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                answer = Answer.FromString(await reader.readexactly(size))
                if not answer.HasField("pods"):
                    return
                assert len(answer.pods.pods) >= self._least, f"agent {number} was sent {answer.pods}"
                self.notified[number] = time.monotonic()
        finally:
            writer.transport.abort()
