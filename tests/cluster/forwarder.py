"""Forwards connections of a loopback port to a server that it chooses for each connection. TLS passes unchanged.

The stand-ins for a Service and for an interrupted network use the forwarder. Before its thread ends, the forwarder
closes everything that it opened. Otherwise the garbage collector would close a socket later, and that fails a later
test.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Self

Target = tuple[str, int]  # host and port


class Forwarder:
    """Forwards connections in a separate thread, until the end of a block.

    Args:
        choose: returns the target of the next connection, or None to refuse it; called in the forwarder's thread.
    """

    def __init__(self, choose: Callable[[], Target | None]) -> None:
        self.port = 0
        self._choose = choose
        self._connections: set[asyncio.Task[None]] = set()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def end_connections(self) -> None:
        """End the current connections, even if they still hold data."""
        asyncio.run_coroutine_threadsafe(self._end_connections(), self._loop).result(10)

    async def _run(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])
        self._listening.set()
        await self._ended.wait()
        # Wait until no connection is about to be accepted: Python 3.11 leaves a socket open if its server is already
        # closed.
        while asyncio.all_tasks() != {asyncio.current_task()}:
            await self._end_connections()
            await asyncio.sleep(0)
        server.close()

    async def _end_connections(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Begin to serve a connection. The forwarder closes what it opened for the connection, even if the connection
        ends before it is served.
        """
        opened = [writer]

        def close(ended: asyncio.Task[None]) -> None:
            self._connections.discard(ended)
            for each in opened:
                each.transport.abort()

        connection = asyncio.create_task(self._serve(reader, opened))
        self._connections.add(connection)
        connection.add_done_callback(close)

    async def _serve(self, reader: asyncio.StreamReader, opened: list[asyncio.StreamWriter]) -> None:
        with contextlib.suppress(OSError):
            if target := self._choose():
                far_reader, far_writer = await asyncio.open_connection(*target)
                opened.append(far_writer)
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, opened[0]))
                await asyncio.gather(*(each.wait_closed() for each in opened))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
