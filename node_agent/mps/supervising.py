"""`orion mps-daemon`: keeps a control daemon running for every GPU that the agent wants in mode mps.

It follows the folder that it shares with the agent and asks nobody else. Whatever its end, its control daemons end
with it, and with them their clients' contexts; so it is written to have no reason to end: an error with one GPU is said
in that GPU's state and tried again, each time after a longer while.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from orion.node_agent.mps.control import SEVERAL_USERS, ControlDaemon, ControlFailed, empty, kill_leftovers, program
from orion.node_agent.mps.folder import MpsFolder, Phase, State, Wanted
from orion.node_agent.mps.refreshing import Refresher
from orion.node_agent.processes import undumpable

_log = logging.getLogger(__name__)

_IS_ROOT = os.geteuid() == 0
""" Who else is, only serves its own user id. """

_LOOK_SECONDS = 0.25
_ASK_SECONDS = 15.0
""" Between two looks at the servers of one that runs. """
_BACKOFF_SECONDS = (0.5, 30.0)
_WELL_SECONDS = 60.0
""" One that has run for so long begins again with the shortest wait. """
_TAKE_SECONDS = 30.0
""" So long the one before us, whose pod is ending, is waited for. """


class AlreadyRuns(Exception):
    """Another MPS daemon holds the folder; one sentence."""


@dataclass(frozen=True)
class Options:
    """How control daemons are run."""

    driver_root: Path = Path("/")
    """ Where the driver's root directory is seen; searched where PATH has no MPS programs. """
    refresh_ms: float = 0.0
    """ Between two switches of contexts on a real GPU (refreshing.py); 0: none. """


class Keeper:
    """Keeps one GPU's control daemon.

    Args:
        folder: shared with the agent.
        uuid: the GPU's.
        wanted: what the agent wants.
        options: how it is run.
    """

    def __init__(self, folder: MpsFolder, uuid: str, wanted: Wanted, options: Options) -> None:
        self._folder, self._uuid, self._wanted, self._driver_root = folder, uuid, wanted, options.driver_root
        self._refresher = Refresher(uuid, 0.0 if wanted.simulated else options.refresh_ms, options.driver_root)
        self._several_users = _IS_ROOT
        self._failures = 0
        self._since = time.time()
        self._said: State | None = None

    async def run(self) -> None:
        """Keep it running until cancelled; then it is ended, and its state taken away."""
        try:
            while True:
                began = time.monotonic()
                message = await self._once()
                if time.monotonic() - began > _WELL_SECONDS:
                    self._failures = 0
                self._failures += 1
                self._say(Phase.FAILED, message=message)
                _log.error("mps: %s: %s", self._uuid, message)
                await asyncio.sleep(min(_BACKOFF_SECONDS[0] * 2 ** (self._failures - 1), _BACKOFF_SECONDS[1]))
        finally:
            empty(self._folder.clients(self._uuid))
            self._folder.say(self._uuid, None)
            _log.info("mps: %s: its control daemon has ended", self._uuid)

    async def _once(self) -> str:
        """Run it once; return why it ended."""
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
            self._say(Phase.STARTING)
            try:
                await daemon.start()
            except (ControlFailed, OSError) as failure:
                # An older driver's ends at once over the option; next time without it, and with it again after that.
                self._several_users = _IS_ROOT and not (self._several_users and _is_about_the_option(str(failure)))
                await daemon.kill()
                raise
            self._say_that_it_runs(daemon)
            async with self._refresher.running():
                ended = await self._follow(daemon)
            self._several_users = _IS_ROOT
            return ended
        except ControlFailed as error:
            return str(error)
        except OSError as error:
            return f"the node refuses: {error}"
        except asyncio.CancelledError:
            self._say(Phase.STOPPING)
            if daemon is not None:
                await daemon.stop()
            raise

    def _say_that_it_runs(self, daemon: ControlDaemon) -> None:
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
                except ControlFailed as error:
                    message = str(error)
                if not ending.done():
                    self._say(Phase.RUNNING, daemon, servers, message)
                await asyncio.wait([ending], timeout=_ASK_SECONDS)
                daemon.trim()
        finally:
            ending.cancel()
        daemon.close()
        return daemon.last_words()

    def _say(
        self, phase: Phase, daemon: ControlDaemon | None = None, servers: tuple[int, ...] = (), message: str = ""
    ) -> None:
        if self._said is None or self._said.phase is not phase:
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
        if state == self._said:
            return
        with contextlib.suppress(OSError):  # a full disk; said again with the next change
            self._folder.say(self._uuid, state)
            self._said = state


def _is_about_the_option(words: str) -> bool:
    return any(each in words.lower() for each in (SEVERAL_USERS.lstrip("-"), "invalid option", "usage"))


class Supervisor:
    """All of a node.

    Args:
        folder: shared with the agent.
        options: how each is run.
    """

    def __init__(self, folder: MpsFolder, options: Options) -> None:
        self._folder, self._options = folder, options
        self._keepers: dict[str, tuple[Wanted, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Follow what is wanted until cancelled; then end everything."""
        for uuid in self._folder.known():
            # Of one that was killed: its clients go with it, so the first who comes finds nothing half alive.
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
        except OSError as refusal:  # what cannot be read now is not taken back: clients would go with it
            _log.error("mps: %s cannot be read: %s", self._folder.path, refusal)
            return
        for uuid, (before, task) in list(self._keepers.items()):
            if task.done():
                del self._keepers[uuid]
                if not task.cancelled() and (error := task.exception()) is not None:
                    _log.error("mps: %s: %r", uuid, error)
            elif wanted.get(uuid) != before and not task.cancelling():
                _log.info("mps: %s is no longer wanted in mode mps", uuid)
                task.cancel()
        for uuid, each in wanted.items():
            if uuid not in self._keepers:
                _log.info("mps: %s is wanted in mode mps", uuid)
                keeper = Keeper(self._folder, uuid, each, self._options)
                self._keepers[uuid] = (each, asyncio.create_task(keeper.run()))


def run(root: Path, options: Options) -> None:
    """Be a node's MPS daemon until SIGTERM or SIGINT.

    Raises:
        AlreadyRuns: another one is.
        OSError: the folder cannot be had.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    undumpable.become()
    asyncio.run(_run(MpsFolder(root), options))


async def _run(folder: MpsFolder, options: Options) -> None:
    """Follow signals from the first moment: whoever sees that a daemon lives may end it."""
    serving = asyncio.create_task(_serve(folder, options))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _serve(folder: MpsFolder, options: Options) -> None:
    lock = await _take(folder)
    try:
        _log.info("mps: follows %s", folder.path)
        await Supervisor(folder, options).run()
    finally:
        _log.info("mps: has ended, and the control daemons with it")
        os.close(lock)


async def _take(folder: MpsFolder) -> int:
    deadline, reported = time.monotonic() + _TAKE_SECONDS, False
    while (lock := folder.take()) is None:
        if time.monotonic() > deadline:
            raise AlreadyRuns(f"another MPS daemon serves {folder.path}; end it, or use another root")
        if not reported:
            _log.info("mps: waits for the daemon before it, at most %g s", _TAKE_SECONDS)
            reported = True
        await asyncio.sleep(0.1)
    return lock
