"""One MPS control daemon: finding its program, starting it, sending it commands, stopping it.

NVIDIA's program `nvidia-cuda-mps-control` is the daemon (`-f`: in the foreground) and also the client that sends it
commands (on standard input). Its environment selects the GPU and the folder of its sockets. With `-multiuser-server`
(as root) clients of all user ids share one server; clients in containers need that. If the driver does not have this
option, the daemon runs without it. Its server then serves one user id at a time: a client of another user waits until
the last client of the first user has ended. For a simulated GPU, simulated_control.py replaces NVIDIA's program, with
the same options.
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

from orion.errors import Unavailable
from orion.node_agent.mps.folder import CONTROL_SOCKET

PROGRAM = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
SEVERAL_USERS = "-multiuser-server"

_ANSWER_SECONDS = 10.0
_QUIT_SECONDS = 5
""" How long a control daemon waits for its servers before it kills them. """
_END_SECONDS = _QUIT_SECONDS + 5.0
_WORDS = 400
_OUT, _LOGS = "control.out", ("control.log", "server.log")
_LOG_BYTES = 4 << 20
_PR_SET_PDEATHSIG = 1


def program(simulated: bool, driver_root: Path) -> list[str]:
    """Return the command of NVIDIA's program, which runs a control daemon or sends commands to a running one.

    Args:
        simulated: whether the GPU is simulated.
        driver_root: where the root directory of the node, or of the driver, is mounted. It is searched if PATH does not
            have the program.

    Raises:
        Unavailable: the program was not found.
    """
    if simulated:
        return [sys.executable, "-Pm", "orion.node_agent.mps.simulated_control"]
    if shutil.which(PROGRAM):
        if shutil.which(SERVER) is None:
            raise Unavailable(f"{PROGRAM} is in PATH, but {SERVER} is not: the driver's files are not complete")
        return [PROGRAM]
    for folder in ("usr/bin", "bin", "usr/local/nvidia/bin", "opt/bin"):
        if driver_root != Path("/") and (driver_root / folder / PROGRAM).exists():
            return ["chroot", str(driver_root), f"/{folder}/{PROGRAM}"]
    raise Unavailable(
        f"there is no {PROGRAM} in PATH or below {driver_root}: the MPS daemon's container needs NVIDIA's runtime "
        "class (and NVIDIA_DRIVER_CAPABILITIES with compute), or the driver's root"
    )


def environment(uuid: str, pipe: Path, log: Path) -> dict[str, str]:
    """Return the environment for a GPU's control daemon, and for the program that sends it commands."""
    return {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(log),
    }


class ControlDaemon:
    """The control daemon of one GPU. Start an instance only once.

    Args:
        command: as `program` returns it.
        uuid: the GPU's UUID.
        pipe: the folder for the daemon's sockets.
        clients: the folder that containers see; it gets a link to the clients' socket.
        log: the folder for the daemon's output and logs.
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
        """The daemon's process id; 0: it was not started."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start the daemon, and return when it accepts clients.

        Raises:
            Unavailable: the daemon ended or does not answer.
        """
        self.close()
        options = ["-f", SEVERAL_USERS] if self.several_users else ["-f"]
        with (self._log / _OUT).open("ab") as output:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, *options, env=self._environment, stdin=asyncio.subprocess.DEVNULL,
                    stdout=output, stderr=output, start_new_session=True, preexec_fn=_end_with_parent,
                )  # fmt: skip
            except OSError as error:
                raise Unavailable(f"{self._command[0]} cannot be started: {error}") from None
        deadline = asyncio.get_running_loop().time() + 2 * _ANSWER_SECONDS
        while True:
            if self._process.returncode is not None:
                raise Unavailable(self.last_words())
            with contextlib.suppress(Unavailable):
                if (self._pipe / CONTROL_SOCKET).exists():
                    await self.servers()
                    # Link only the clients' socket: containers must not see the socket that accepts `quit`.
                    os.link(self._pipe / CONTROL_SOCKET, self._clients / CONTROL_SOCKET)
                    return
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(f"it runs, but has not answered for {2 * _ANSWER_SECONDS:g} s")
            await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """Kill the daemon's process only. Its servers continue until their clients end."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def ended(self) -> None:
        """Return when the daemon has ended."""
        if self._process is not None:
            await self._process.wait()

    async def servers(self) -> tuple[int, ...]:
        """Return the process ids of the daemon's servers; empty before the first client.

        Raises:
            Unavailable: the daemon does not answer.
        """
        return tuple(sorted(int(word) for word in (await self._ask("get_server_list")).split() if word.isdecimal()))

    async def stop(self) -> None:
        """Stop the daemon and its servers, with `quit` if the daemon answers; return when all have ended."""
        empty(self._clients)
        with contextlib.suppress(Unavailable):
            await self._ask(f"quit -t {_QUIT_SECONDS}")
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._process.wait()
            await self.kill()
        kill_leftovers(self._pipe)
        self.close()

    def close(self) -> None:
        """Remove all sockets, so that no process tries to join."""
        empty(self._clients)
        empty(self._pipe)

    def trim(self) -> None:
        """Truncate large logs: the folder is in memory."""
        for name in (_OUT, *_LOGS):
            with contextlib.suppress(OSError):
                if (self._log / name).stat().st_size > _LOG_BYTES:
                    os.truncate(self._log / name, 0)

    def last_words(self) -> str:
        """Return how the daemon ended, and the end of its output."""
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
        except OSError as error:  # this process cannot start another; the daemon itself may work
            raise Unavailable(f"it cannot be asked: {error}") from None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS + (_QUIT_SECONDS if question.startswith("quit") else 0)):
                output, _ = await asking.communicate(f"{question}\n".encode())
        except TimeoutError:
            raise Unavailable(f"it has not answered for {_ANSWER_SECONDS:g} s") from None
        finally:
            if asking.returncode is None:
                asking.kill()
                await asking.wait()
        text = output.decode(errors="replace")
        if asking.returncode != 0 or "Cannot find" in text:
            raise Unavailable(f"it does not answer: {' '.join(text.split())[-_WORDS:] or asking.returncode}")
        return text


def empty(folder: Path) -> None:
    """Remove the contents of a folder. The folder itself stays, because containers have it mounted."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


def kill_leftovers(pipe: Path) -> None:
    """Kill the remaining control daemons and servers of a pipe folder; their environment names the folder."""
    for process_id in _of_pipe(pipe):
        with contextlib.suppress(OSError):
            os.kill(process_id, signal.SIGKILL)


def _of_pipe(pipe: Path) -> Iterator[int]:
    mark = b"CUDA_MPS_PIPE_DIRECTORY=" + os.fsencode(pipe)
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            # comm holds 15 characters: the daemon and its servers have the same name there, and clients have another.
            named = Path("/proc", name, "comm").read_text().startswith(PROGRAM[:15])
            if named and mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                yield int(name)


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _WORDS))
        return " ".join(file.read().decode(errors="replace").split())


def _end_with_parent() -> None:
    """Let the kernel kill the daemon when this process ends. Otherwise its clients could not use the next daemon."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
