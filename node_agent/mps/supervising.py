"""`orion mps-daemon`: runs a control daemon for every GPU that the agent requests in mode `mps`.

The MPS daemon reads only the folder that it shares with the agent. If it ends, its control daemons and the contexts of
their clients end too. So it does not end after an error. It writes the error into the GPU's state and tries again after
a pause, which grows.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from orion.errors import Conflict, Unavailable
from orion.node_agent.mps.control import SEVERAL_USERS, ControlDaemon, empty, kill_leftovers, program
from orion.node_agent.mps.folder import MpsFolder, Phase, State, Wanted
from orion.node_agent.mps.refreshing import Refresher
from orion.node_agent.processes import undumpable
from orion.shutdown import Shutdown

_log = logging.getLogger(__name__)

_IS_ROOT = os.geteuid() == 0
""" Without root, an MPS server serves only the user who started it. """

_LOOK_SECONDS = 0.25
_ASK_SECONDS = 15.0
""" The pause between two queries of a running control daemon's servers. """
_BACKOFF_SECONDS = (0.5, 30.0)
_WELL_SECONDS = 60.0
""" A daemon that has run for this time starts again with the shortest pause. """
_TAKE_SECONDS = 30.0
""" How long to wait for the previous MPS daemon, whose pod is ending. """
_SHUTDOWN_S = 40.0
""" How long the end may take; stopping a control daemon that does not answer takes 30 s. """


@dataclass(frozen=True)
class Options:
    """How control daemons are run."""

    driver_root: Path = Path("/")
    """ Where the driver's root directory is mounted; it is searched if PATH does not have the MPS programs. """
    refresh_ms: float = 0.0
    """ Time between two context switches on a real GPU (refreshing.py); 0: none. """


class Keeper:
    """Runs one GPU's control daemon, and starts it again when it ends.

    Args:
        folder: the folder shared with the agent.
        uuid: the GPU's UUID.
        wanted: what the agent requests.
        options: how control daemons are run.
    """

    def __init__(self, folder: MpsFolder, uuid: str, wanted: Wanted, options: Options) -> None:
        self._folder, self._uuid, self._wanted, self._driver_root = folder, uuid, wanted, options.driver_root
        self._refresher = Refresher(uuid, 0.0 if wanted.simulated else options.refresh_ms, options.driver_root)
        self._several_users = _IS_ROOT
        self._failures = 0
        self._since = time.time()
        self._written: State | None = None

    async def run(self) -> None:
        """Keep the control daemon running until cancelled; then stop it and remove its state."""
        try:
            while True:
                began = time.monotonic()
                message = await self._once()
                if time.monotonic() - began > _WELL_SECONDS:
                    self._failures = 0
                self._failures += 1
                self._write(Phase.FAILED, message=message)
                _log.error("mps: %s: %s", self._uuid, message)
                await asyncio.sleep(min(_BACKOFF_SECONDS[0] * 2 ** (self._failures - 1), _BACKOFF_SECONDS[1]))
        finally:
            empty(self._folder.clients(self._uuid))
            self._folder.write_state(self._uuid, None)
            _log.info("mps: %s: its control daemon has ended", self._uuid)

    async def _once(self) -> str:
        """Run the control daemon once; return why it ended."""
        daemon: ControlDaemon | None = None
        try:
            self._folder.make(self._uuid)
            daemon = ControlDaemon(
                program(self._wanted.simulated, self._driver_root),
                self._uuid,
                self._folder.pipe(self._uuid),
                self._folder.clients(self._uuid),
                self._folder.log(self._uuid),
                self._several_users,
            )  # fmt: skip
            self._write(Phase.STARTING)
            try:
                await daemon.start()
            except (Unavailable, OSError) as failure:
                # An older driver's daemon ends at once because of the option: try with and without it in turn.
                self._several_users = _IS_ROOT and not (self._several_users and _is_about_the_option(str(failure)))
                await daemon.kill()
                raise
            self._log_start(daemon)
            async with self._refresher.running():
                ended = await self._follow(daemon)
            self._several_users = _IS_ROOT
            return ended
        except Unavailable as error:
            return str(error)
        except OSError as error:
            return f"its control daemon cannot be run: {error}"
        except asyncio.CancelledError:
            self._write(Phase.STOPPING)
            if daemon is not None:
                await daemon.stop()
            raise

    def _log_start(self, daemon: ControlDaemon) -> None:
        _log.info("mps: %s: its control daemon runs (process %d)", self._uuid, daemon.process_id)
        if _IS_ROOT and not self._several_users:
            _log.warning("mps: %s: this driver's MPS serves one user id at a time; others wait", self._uuid)

    async def _follow(self, daemon: ControlDaemon) -> str:
        ending = asyncio.create_task(daemon.ended())
        self._since = time.time()
        try:
            while not ending.done():
                servers: tuple[int, ...] = ()
                message = ""
                try:
                    servers = await daemon.servers()
                except Unavailable as error:
                    message = str(error)
                if not ending.done():
                    self._write(Phase.RUNNING, daemon, servers, message)
                await asyncio.wait([ending], timeout=_ASK_SECONDS)
                daemon.trim()
        finally:
            ending.cancel()
        daemon.close()
        return daemon.last_words()

    def _write(
        self, phase: Phase, daemon: ControlDaemon | None = None, servers: tuple[int, ...] = (), message: str = ""
    ) -> None:
        if self._written is None or self._written.phase is not phase:
            self._since = time.time()
        state = State(
            phase=phase,
            since=self._since,
            process_id=daemon.process_id if daemon else 0,
            servers=servers,
            several_users=self._several_users,
            failures=self._failures,
            message=message,
        )
        if state == self._written:
            return
        with contextlib.suppress(OSError):  # a full disk: the next change tries again
            self._folder.write_state(self._uuid, state)
            self._written = state


def _is_about_the_option(words: str) -> bool:
    return any(each in words.lower() for each in (SEVERAL_USERS.lstrip("-"), "invalid option", "usage"))


class Supervisor:
    """Runs the control daemons of all GPUs of a node.

    Args:
        folder: the folder shared with the agent.
        options: how control daemons are run.
    """

    def __init__(self, folder: MpsFolder, options: Options) -> None:
        self._folder, self._options = folder, options
        self._keepers: dict[str, tuple[Wanted, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Follow the agent's requests until cancelled; then stop all control daemons."""
        for uuid in self._folder.known():
            # End the servers that a killed MPS daemon left, and so their clients: no new client may join such a server.
            kill_leftovers(self._folder.pipe(uuid))
            empty(self._folder.clients(uuid))
        try:
            while True:
                self._look()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            tasks = [task for _, task in self._keepers.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> None:
        try:
            wanted = self._folder.wanted()
        except OSError as refusal:  # a request that cannot be read stays valid: withdrawing it would end clients
            _log.error("mps: %s cannot be read: %s", self._folder.path, refusal)
            return
        for uuid, (before, task) in list(self._keepers.items()):
            if task.done():
                del self._keepers[uuid]
                if not task.cancelled() and (error := task.exception()) is not None:
                    _log.error("mps: %s: %r", uuid, error)
            elif wanted.get(uuid) != before and not task.cancelling():
                _log.info("mps: %s: the agent no longer requests mode mps", uuid)
                task.cancel()
        for uuid, each in wanted.items():
            if uuid not in self._keepers:
                _log.info("mps: %s: the agent requests mode mps", uuid)
                keeper = Keeper(self._folder, uuid, each, self._options)
                self._keepers[uuid] = (each, asyncio.create_task(keeper.run()))


def run(root: Path, options: Options) -> None:
    """Run as the node's MPS daemon until SIGTERM or SIGINT.

    Raises:
        Conflict: another MPS daemon runs.
        OSError: the folder cannot be made.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    undumpable.become()
    asyncio.run(_run(MpsFolder(root), options))


async def _run(folder: MpsFolder, options: Options) -> None:
    await Shutdown(_SHUTDOWN_S).run(_serve(folder, options))


async def _serve(folder: MpsFolder, options: Options) -> None:
    lock = await _take(folder)
    try:
        _log.info("mps: follows %s", folder.path)
        await Supervisor(folder, options).run()
    finally:
        _log.info("mps: the daemon and its control daemons have ended")
        os.close(lock)


async def _take(folder: MpsFolder) -> int:
    deadline, reported = time.monotonic() + _TAKE_SECONDS, False
    while (lock := folder.take()) is None:
        if time.monotonic() > deadline:
            raise Conflict(f"another MPS daemon serves {folder.path}; end it, or use another root")
        if not reported:
            _log.info("mps: waits for the previous daemon, at most %g s", _TAKE_SECONDS)
            reported = True
        await asyncio.sleep(0.1)
    return lock
