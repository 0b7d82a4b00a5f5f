"""The driver's two sockets in the kubelet's folders, by which the kubelet finds the driver and calls it.

The kubelet looks into `plugins_registry` once a second, asks each socket who it is, and connects to the socket that the
answer names. It keeps a driver until that driver's registration socket is gone. So the driver needs no kubelet to be
there, and one that starts later finds it. During a rolling update two drivers have sockets of different names, and the
kubelet calls the one that came last.

The driver looks once a second whether its sockets are there, because somebody may empty the folders. It removes sockets
on which no driver listens any more: the kubelet would try to reach them for ever.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc.aio

from orion.crds.claims import DRIVER
from orion.dra_driver.health import SERVICES
from orion.dra_driver.kubelet.registration import api_pb2, api_pb2_grpc
from orion.injection.unix_sockets import Identity, identity, is_abandoned, listen

_LOOK_SECONDS = 1.0
_END_SECONDS = 5.0
""" How long calls of the kubelet may go on when the driver ends. """
_VERSIONS = ("v1.DRAPlugin", *SERVICES)

_log = logging.getLogger(__name__)


class Sockets(api_pb2_grpc.RegistrationServicer):
    """Serves on both sockets.

    Args:
        folder: the kubelet's root directory.
        add_services: adds the services that the kubelet calls to a server.
        registered: called with True or False when the kubelet has accepted or refused the driver.
    """

    def __init__(
        self, folder: Path, add_services: Callable[[grpc.aio.Server], None], registered: Callable[[bool], None]
    ) -> None:
        token = secrets.token_hex(4)
        self._plugin = folder / "plugins" / DRIVER / f"{token}.sock"
        self._registry = folder / "plugins_registry" / f"{DRIVER}-{token}.sock"
        self._add_services, self._report = add_services, registered
        self._servers: list[grpc.aio.Server] = []
        self._found: list[Identity | None] = []
        self._complaint = ""
        self.stands = False
        """ Whether the kubelet has accepted the driver. """

    async def run(self) -> None:
        """Serve until cancelled; serve again if a socket is gone."""
        while True:
            if self._found != [identity(path) for path in (self._plugin, self._registry)] or not self._found:
                await self._serve_again()
            await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self) -> None:
        """Stop serving. The registration socket goes first, so that the kubelet turns to another driver."""
        for path in (self._registry, self._plugin):
            with contextlib.suppress(OSError):
                path.unlink()
        servers, self._servers, self._found = self._servers, [], []
        for server in servers:
            await server.stop(grace=_END_SECONDS)

    def is_latest(self) -> bool:
        """Return whether no other living driver has made its socket later: the kubelet calls the latest."""
        pattern = f"{DRIVER}-*.sock"
        dead = set(_dead(self._registry.parent, pattern))
        times = {path: _made(path) for path in self._registry.parent.glob(pattern) if path not in dead}
        return self._registry in times and times[self._registry] == max(times.values())

    async def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say who listens here."""
        return api_pb2.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=str(self._plugin), supported_versions=_VERSIONS
        )

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Take note of whether the kubelet has accepted the driver."""
        self.stands = request.plugin_registered
        self._report(self.stands)
        if self.stands:
            _log.info("kubelet: it has accepted the driver")
        else:
            _log.error("kubelet: it refuses the driver: %s", request.error)
        return api_pb2.RegistrationStatusResponse()

    async def _serve_again(self) -> None:
        if self._found:
            _log.warning("kubelet: a socket of the driver is gone; it is made again")
        await self.stop()
        self.stands = False
        self._report(False)
        try:
            self._plugin.parent.mkdir(parents=True, exist_ok=True)
            self._registry.parent.mkdir(parents=True, exist_ok=True)
            for dead in [*_dead(self._plugin.parent, "*.sock"), *_dead(self._registry.parent, f"{DRIVER}-*.sock")]:
                dead.unlink(missing_ok=True)
            await self._serve(self._plugin, self._add_services)
            await self._serve(self._registry, self._add_registration)
            self._found = [identity(path) for path in (self._plugin, self._registry)]
            self._complaint = ""
        except OSError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("kubelet: the driver's sockets cannot be made: %s; it tries again", error)

    def _add_registration(self, server: grpc.aio.Server) -> None:
        api_pb2_grpc.add_RegistrationServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def _serve(self, path: Path, add: Callable[[grpc.aio.Server], None]) -> None:
        """Listen on a socket that only root can reach.

        Raises:
            OSError: the socket cannot be made.
        """
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add(server)
        await listen(server, path)
        self._servers.append(server)


def _made(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime_ns
    return 0


def _dead(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the sockets on which nobody listens. A driver that starts has bound and listens in one step."""
    for path in folder.glob(pattern):
        if is_abandoned(path):
            yield path
