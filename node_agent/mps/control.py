"""One control daemon: its program, its start, what it answers, its end.

NVIDIA's program is both the daemon (`-f`: in the foreground) and the way to ask it (commands on standard input). Its
environment says which GPU it is for and where it takes clients. `-multiuser-server` (as root) lets clients of all user
ids share one server, as containers' do; a driver that does not know it is run without, and then serves one user id at
a time: a client of another waits until the last one of the first has gone. For a simulated GPU a small program of ours
stands in its place (simulated_control.py), under the same names.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from orion.node_agent.mps.folder import CONTROL_SOCKET

PROGRAM = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
SEVERAL_USERS = "-multiuser-server"

_ANSWER_SECONDS = 10.0
_QUIT_SECONDS = 5
""" That a control daemon gives its servers before it ends them. """
_END_SECONDS = _QUIT_SECONDS + 5.0
_WORDS = 400
_OUT, _LOGS = "control.out", ("control.log", "server.log")
_LOG_BYTES = 4 << 20
_PR_SET_PDEATHSIG = 1


class ControlFailed(Exception):
    """A control daemon does not start or does not answer; one sentence."""


def program(simulated: bool, driver_root: Path) -> list[str]:
    """Return the command that is a control daemon, or asks one.

    Args:
        simulated: of a simulated GPU.
        driver_root: where the node's root directory, or the driver's, is seen: searched where PATH has no such program.

    Raises:
        ControlFailed: there is none.
    """
    if simulated:
        return [sys.executable, "-m", "orion.node_agent.mps.simulated_control"]
    if shutil.which(PROGRAM):
        if shutil.which(SERVER) is None:
            raise ControlFailed(f"{PROGRAM} is in PATH, but {SERVER} is not: the driver's files are not complete")
        return [PROGRAM]
    for folder in ("usr/bin", "bin", "usr/local/nvidia/bin", "opt/bin"):
        if driver_root != Path("/") and (driver_root / folder / PROGRAM).exists():
            return ["chroot", str(driver_root), f"/{folder}/{PROGRAM}"]
    raise ControlFailed(
        f"there is no {PROGRAM} in PATH or below {driver_root}: the MPS daemon's container needs NVIDIA's runtime "
        "class (and NVIDIA_DRIVER_CAPABILITIES with compute), or the driver's root"
    )


def environment(uuid: str, pipe: Path, log: Path) -> dict[str, str]:
    """Return the environment of a GPU's control daemon, and of those who ask it."""
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(log),
    }


class ControlDaemon:
    """The control daemon of one GPU; started once.

    Args:
        command: as `program` returns it.
        uuid: the GPU's.
        pipe: for its sockets.
        clients: what its clients see of that.
        log: where it writes.
        several_users: whether clients of all user ids share one server.
    """

    def __init__(
        self, command: list[str], uuid: str, pipe: Path, clients: Path, log: Path, several_users: bool
    ) -> None:
        self._command, self._pipe, self._clients, self._log = command, pipe, clients, log
        self._environment = environment(uuid, pipe, log)
        self.several_users = several_users
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process_id(self) -> int:
        """The daemon's; 0: it was not started."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start it, and return when it takes clients.

        Raises:
            ControlFailed: it ended or does not answer.
        """
        self.close()
        options = ["-f", SEVERAL_USERS] if self.several_users else ["-f"]
        with (self._log / _OUT).open("ab") as said:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, *options, env=self._environment, stdin=asyncio.subprocess.DEVNULL,
                    stdout=said, stderr=said, start_new_session=True, preexec_fn=_end_with_parent,
                )  # fmt: skip
            except OSError as error:
                raise ControlFailed(f"{self._command[0]} cannot be started: {error}") from None
        deadline = asyncio.get_running_loop().time() + 2 * _ANSWER_SECONDS
        while True:
            if self._process.returncode is not None:
                raise ControlFailed(self.last_words())
            with contextlib.suppress(ControlFailed):
                if (self._pipe / CONTROL_SOCKET).exists():
                    await self.servers()
                    # A link, not the folder: what tells the daemon to quit is nothing that a container should see.
                    os.link(self._pipe / CONTROL_SOCKET, self._clients / CONTROL_SOCKET)
                    return
            if asyncio.get_running_loop().time() > deadline:
                raise ControlFailed(f"it runs, but has not answered for {2 * _ANSWER_SECONDS:g} s")
            await asyncio.sleep(0.05)

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended."""
        return self._process is not None and self._process.returncode is not None

    async def kill(self) -> None:
        """End it by force, and nothing beside it: a server that has clients serves them until they end."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def ended(self) -> None:
        """Return once it has ended."""
        if self._process is not None:
            await self._process.wait()

    async def servers(self) -> tuple[int, ...]:
        """Return its servers; none before the first client.

        Raises:
            ControlFailed: it does not answer.
        """
        return tuple(sorted(int(word) for word in (await self._ask("get_server_list")).split() if word.isdecimal()))

    async def stop(self) -> None:
        """End it and its servers, in an orderly way if it lets us; returns when nothing of it is left."""
        empty(self._clients)
        with contextlib.suppress(ControlFailed):
            await self._ask(f"quit -t {_QUIT_SECONDS}")
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._process.wait()
            await self.kill()
        kill_leftovers(self._pipe)
        self.close()

    def close(self) -> None:
        """Leave nothing by which anybody could try to join."""
        empty(self._clients)
        empty(self._pipe)

    def trim(self) -> None:
        """Keep what it writes, in memory as the whole folder is, from growing for ever."""
        for name in (_OUT, *_LOGS):
            with contextlib.suppress(OSError):
                if (self._log / name).stat().st_size > _LOG_BYTES:
                    os.truncate(self._log / name, 0)

    def last_words(self) -> str:
        """Return how it ended, and the end of what it wrote."""
        status = self._process.returncode if self._process else None
        if status is None:
            return f"{PROGRAM} runs"
        if status < 0:
            return f"{PROGRAM} ended by signal {-status}"
        words = ""
        for name in (_OUT, *_LOGS):
            with contextlib.suppress(OSError):
                words = words or _tail(self._log / name)
        return f"{PROGRAM} ended with status {status}" + (f": {words}" if words else "")

    async def _ask(self, question: str) -> str:
        try:
            asking = await asyncio.create_subprocess_exec(
                *self._command, env=self._environment, stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:  # no process to be had now says nothing of the daemon
            raise ControlFailed(f"it cannot be asked: {error}") from None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS + (_QUIT_SECONDS if question.startswith("quit") else 0)):
                said, _ = await asking.communicate(f"{question}\n".encode())
        except TimeoutError:
            raise ControlFailed(f"it has not answered for {_ANSWER_SECONDS:g} s") from None
        finally:
            if asking.returncode is None:
                asking.kill()
                await asking.wait()
        text = said.decode(errors="replace")
        if asking.returncode != 0 or "Cannot find" in text:
            raise ControlFailed(f"it does not answer: {' '.join(text.split())[-_WORDS:] or asking.returncode}")
        return text


def empty(folder: Path) -> None:
    """Take everything out of a folder that stays: containers have it mounted."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


def kill_leftovers(pipe: Path) -> None:
    """End the daemons and servers of a pipe folder that nobody has ended; known by their environment."""
    for process_id in _of_pipe(pipe):
        with contextlib.suppress(OSError):
            os.kill(process_id, signal.SIGKILL)


def _of_pipe(pipe: Path) -> Iterator[int]:
    mark = b"CUDA_MPS_PIPE_DIRECTORY=" + os.fsencode(pipe)
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            # comm holds 15 characters: the daemon and its servers look the same, and clients do not.
            named = Path("/proc", name, "comm").read_text().startswith(PROGRAM[:15])
            if named and mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                yield int(name)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _WORDS))
        return " ".join(file.read().decode(errors="replace").split())


def _end_with_parent() -> None:
    """Let the kernel end the daemon with us: one that nobody follows would keep its clients from every other."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
