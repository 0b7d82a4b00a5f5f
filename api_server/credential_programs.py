"""Runs the program that logs a user in, as kubeconfigs of EKS, GKE and AKS ask for: client-go's credential plugins.

It runs when a credential is first needed, shortly before the last one expires, and when that was refused; one run
serves all who wait, and its failure too.

Own code, since `kubernetes.config` runs such a program without a limit of time in the caller's thread, ends neither it
nor its children when the request or the loop ends, does not run it again when the API server refuses its token, and
runs it for each request where a token lasts less than five minutes. `kubernetes.aio.config` reads its two outputs one
after the other, so a program that complains at length never ends; and it uses asyncio's own subprocess: see _Running.

Refused: a run in a thread (a request that waits could not be cancelled), and memory of credentials on disk: programs
that want it have their own.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from orion.api_server.exec_credentials import Credential, LogInFailed, ProgramEntry, read_answer

RUN_S = 30.0
""" How long a program may run where nobody can answer it. """
INTERACTIVE_RUN_S = 120.0
""" Where it has a terminal: somebody may have to type a code, or find a telephone. """
_COMPLAINT = 300
""" Characters of its last line in a sentence. """
_OUTPUT_MAX = 1 << 20
""" Bytes of its output, and of what it complains of, that are kept. """
_KILLED_S = 2.0
""" How long a program that was killed is waited for. """
_LOOK_S = 0.01
""" Between two looks whether one that has nothing more to say has ended. """
_READ = 1 << 16
""" Bytes at a time. """


class CredentialProgram:
    """A program that logs a user in, and what it gave last; used within one event loop.

    Args:
        entry: how it is run.
        user: whom it logs in, and where that is written, for people.
        folder: of the kubeconfig, where a command with a slash in it begins.
        cluster: what it is told of the cluster; None: nothing.
        terminal: whether somebody is there to answer it, at our standard input.
    """

    def __init__(
        self, entry: ProgramEntry, user: str, folder: Path, cluster: Mapping[str, Any] | None, terminal: bool
    ) -> None:
        self._entry, self._said = entry, f"{entry.command}, which logs in {user},"
        self._command = str((folder / entry.command).absolute()) if "/" in entry.command else entry.command
        self._interactive = terminal and entry.interactive_mode != "Never"
        self._spec = {"interactive": self._interactive} | ({} if cluster is None else {"cluster": cluster})
        self._kept: Credential | None = None
        self._run: asyncio.Task[Credential] | None = None
        self.limit_s = INTERACTIVE_RUN_S if self._interactive else RUN_S
        """ How long it may run. """

    def __str__(self) -> str:
        return self._said

    async def credential(self, refused: Credential | None = None) -> Credential:
        """Return a credential that is good for now; the program is run where that takes another one.

        Args:
            refused: what the API server does not take any more; None: there is no word of it.

        Raises:
            LogInFailed: the program did not give one.
        """
        if self._run is None:
            if self._kept is not None and self._kept is not refused and not _is_due(self._kept):
                return self._kept
            self._run = asyncio.create_task(self._renew())
            self._run.add_done_callback(self._forget)
        return await asyncio.shield(self._run)  # who stops waiting does not end it for the others

    def _forget(self, run: asyncio.Task[Credential]) -> None:
        self._run = None
        if not run.cancelled():
            run.exception()  # has been looked at, also where nobody waits any more

    async def _renew(self) -> Credential:
        self._kept = read_answer(await self._output(), self._entry.api_version, self._said)
        return self._kept

    # -- Running it ----------------------------------------------------------------------------------------------------

    async def _output(self) -> bytes:
        running = self._start()
        try:
            async with asyncio.timeout(self.limit_s):
                await running.end()
        except TimeoutError:
            raise LogInFailed(
                f"{self} did not end within {self.limit_s:g} s and was ended: see with kubectl and the same kubeconfig "
                "what it waits for"
            ) from None
        finally:
            await running.kill(with_what_it_started=not self._interactive)
        if status := running.process.returncode:
            how = f"with status {status}" if status > 0 else f"by signal {-status}"
            raise LogInFailed(f"{self} ended {how}: {_last_line(running.complaints)}; fix that, and try again")
        return running.output

    def _start(self) -> "_Running":
        entry = self._entry
        reported = {"apiVersion": entry.api_version, "kind": "ExecCredential", "spec": self._spec}
        try:
            process = subprocess.Popen(
                [self._command, *(entry.args or ())],
                stdin=None if self._interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=os.environ
                | {each.name: each.value for each in entry.env or ()}
                | {"KUBERNETES_EXEC_INFO": json.dumps(reported, default=str)},
                start_new_session=not self._interactive,  # what it starts ends with it; a session has one terminal
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            hint = _one_line(entry.install_hint or "") or "install it, or put it where $PATH finds it"
            raise LogInFailed(f"{self} cannot be started ({reason}): {hint}") from error
        return _Running(process, aloud=self._interactive)


class _Running:
    """A program that runs, and what it has said.

    Not asyncio's own subprocess: where its start is cancelled, as at the end of a loop, that one waits for pipes that
    nobody connects any more (`_wait` in asyncio/base_subprocess.py of Python 3.11).

    Args:
        process: just started, both outputs pipes.
        aloud: whether whoever sits at the terminal reads at once what it says beside its answer: it may be a question.
    """

    def __init__(self, process: subprocess.Popen[bytes], aloud: bool) -> None:
        self.process, self._aloud = process, aloud
        self.output = self.complaints = b""
        self._loop = asyncio.get_running_loop()
        self._silent = asyncio.Event()
        self._pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
            self._loop.add_reader(pipe.fileno(), self._hear, pipe)

    async def end(self) -> None:
        """Wait until the program has ended, and all that it started and gave its pipes has closed them."""
        await self._silent.wait()
        while self.process.poll() is None:
            await asyncio.sleep(_LOOK_S)

    async def kill(self, with_what_it_started: bool) -> None:
        """Kill it unless it has ended, and close its pipes, which what it started may hold."""
        if self._pipes or self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL) if with_what_it_started else self.process.kill()
        for pipe in list(self._pipes):
            self._close(pipe)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILLED_S):
                await self.end()

    def _hear(self, pipe: IO[bytes]) -> None:
        said: bytes | None = pipe.read(_READ)
        if said is None:  # nothing after all
            return
        if not said:
            self._close(pipe)
        elif pipe is self.process.stdout:
            self.output = (self.output + said)[-_OUTPUT_MAX:]
        else:
            self.complaints = (self.complaints + said)[-_OUTPUT_MAX:]
            if self._aloud:
                sys.stderr.write(said.decode(errors="replace"))
                sys.stderr.flush()

    def _close(self, pipe: IO[bytes]) -> None:
        self._loop.remove_reader(pipe.fileno())
        pipe.close()
        self._pipes.remove(pipe)
        if not self._pipes:
            self._silent.set()


def _is_due(credential: Credential) -> bool:
    return credential.renew_at is not None and datetime.now(UTC) >= credential.renew_at


def _last_line(text: bytes) -> str:
    lines = [line for line in map(_one_line, text.decode(errors="replace").splitlines()) if line]
    return lines[-1] if lines else "it did not say why"


def _one_line(text: str) -> str:
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())[:_COMPLAINT].rstrip(".")
