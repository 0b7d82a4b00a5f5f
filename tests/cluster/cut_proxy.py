"""A TCP proxy before an API server, whose cable a test may pull: connections end, and new ones are refused, until it is
put back. TLS goes through it untouched."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

Result = TypeVar("Result")


class CutProxy:
    """Forwards a port of loopback to an API server."""

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (str(target.hostname), int(target.port or 443))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = True
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """End all connections, and take no new ones."""
        self._call(self._cut())

    def mend(self) -> None:
        """Take connections again."""
        self._open = True

    def stop(self) -> None:
        """End it."""
        self._call(self._cut())
        if self._server:
            self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def kubeconfig(self, original: Path, path: Path) -> Path:
        """Write a kubeconfig that goes through here."""
        url = f"https://{self._target[0]}:{self._target[1]}"
        path.write_text(original.read_text().replace(url, self.url))
        path.chmod(0o600)
        return path

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _cut(self) -> None:
        self._open = False
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        self._writers -= {writer, back}

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        with contextlib.suppress(OSError):
            sink.close()


@contextlib.contextmanager
def cut_proxy(url: str) -> Iterator[CutProxy]:
    """Run a proxy until the end of the block."""
    proxy = CutProxy(url)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
