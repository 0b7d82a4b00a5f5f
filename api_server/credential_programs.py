"""Runs the program that logs a user in, as kubeconfigs of EKS, GKE and AKS ask for: client-go's credential plugins.

It runs when a credential is first needed, shortly before the last one expires, and when that was refused; one run
serves all who wait, and its failure too.

Refused: a run in a thread (a request that waits could not be cancelled), and memory of credentials on disk: programs
that want it have their own.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
        transport, heard = await self._start()
        try:
            async with asyncio.timeout(self.limit_s):
                await heard.ended.wait()
        except TimeoutError:
            raise LogInFailed(
                f"{self} did not end within {self.limit_s:g} s and was ended: see with kubectl and the same kubeconfig "
                "what it waits for"
            ) from None
        finally:
            await self._end(transport, heard)
        if status := transport.get_returncode():
            how = f"with status {status}" if status > 0 else f"by signal {-status}"
            raise LogInFailed(f"{self} ended {how}: {_last_line(heard.complaints)}; mend that, and try again")
        return heard.output

    async def _start(self) -> "tuple[asyncio.SubprocessTransport, _Heard]":
        entry = self._entry
        told = {"apiVersion": entry.api_version, "kind": "ExecCredential", "spec": self._spec}
        try:
            return await asyncio.get_running_loop().subprocess_exec(
                lambda: _Heard(aloud=self._interactive),
                self._command,
                *(entry.args or ()),
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=os.environ
                | {each.name: each.value for each in entry.env or ()}
                | {"KUBERNETES_EXEC_INFO": json.dumps(told, default=str)},
                start_new_session=not self._interactive,  # what it starts ends with it; a session has one terminal
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            hint = _one_line(entry.install_hint or "") or "install it, or put it where $PATH finds it"
            raise LogInFailed(f"{self} cannot be started ({reason}): {hint}") from error

    async def _end(self, transport: asyncio.SubprocessTransport, heard: "_Heard") -> None:
        """Kill the program unless it has ended, and close its pipes, which what it started may hold."""
        if not heard.ended.is_set() and not self._interactive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
        transport.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(heard.ended.wait(), _KILLED_S)


class _Heard(asyncio.SubprocessProtocol):
    """The end of what a program says, and whether it has ended and closed its pipes.

    Args:
        aloud: whether whoever sits at the terminal reads at once what it says beside its answer: it may be a question.
    """

    def __init__(self, aloud: bool) -> None:
        self._aloud = aloud
        self.output = self.complaints = b""
        self.ended = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep it."""
        if fd == 1:
            self.output = (self.output + data)[-_OUTPUT_MAX:]
            return
        self.complaints = (self.complaints + data)[-_OUTPUT_MAX:]
        if self._aloud:
            sys.stderr.write(data.decode(errors="replace"))
            sys.stderr.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that it has ended, and all of its pipes."""
        self.ended.set()


def _is_due(credential: Credential) -> bool:
    return credential.renew_at is not None and datetime.now(UTC) >= credential.renew_at


def _last_line(text: bytes) -> str:
    lines = [line for line in map(_one_line, text.decode(errors="replace").splitlines()) if line]
    return lines[-1] if lines else "it did not say why"


def _one_line(text: str) -> str:
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())[:_COMPLAINT].rstrip(".")
