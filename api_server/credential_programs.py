"""Runs client-go's credential plugins: programs that log a user in, as kubeconfigs of EKS, GKE and AKS require.

A plugin runs when a request first needs a credential, shortly before the last credential expires, and when the API
server has rejected it. Requests that wait at the same time share one run of the plugin and its result.

Why not a library: `kubernetes.config` runs a plugin without a time limit in the caller's thread. It does not end the
plugin and its children when the request or the loop ends. It does not run the plugin again when the API server rejects
its token, and runs it for each request if a token lasts less than five minutes. `kubernetes.aio.config` reads the
plugin's two outputs one after the other, so a plugin with long error messages never ends; it also uses asyncio's
subprocess (see _Running).

Rejected: running the plugin in a thread, because a waiting request could not be cancelled. Rejected: a cache of
credentials on disk, because plugins that need such a cache already have one.
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
""" How long a plugin may run without a terminal. """
INTERACTIVE_RUN_S = 120.0
""" How long a plugin may run with a terminal: the user may have to type a code that a telephone shows. """
_LINE_MAX = 300
""" Characters of the plugin's last line in an error. """
_OUTPUT_MAX = 1 << 20
""" How many bytes of stdout are kept; the same limit holds for stderr. """
_KILL_WAIT_S = 2.0
""" How long to wait for a killed plugin. """
_POLL_S = 0.01
""" Time between two checks whether a plugin that closed its outputs has ended. """
_READ = 1 << 16
""" Bytes of one read. """


class CredentialProgram:
    """A credential plugin and its last credential; used within one event loop.

    Args:
        entry: the plugin's entry in the kubeconfig.
        user: the kubeconfig's user and file, for error messages.
        folder: the kubeconfig's folder; a command that contains a slash is relative to this folder.
        cluster: the description of the cluster that the plugin gets; None: it gets no description.
        terminal: whether standard input is a terminal, so that a user can answer the plugin.
    """

    def __init__(
        self, entry: ProgramEntry, user: str, folder: Path, cluster: Mapping[str, Any] | None, terminal: bool
    ) -> None:
        self._entry, self._description = entry, f"{entry.command}, which logs in {user},"
        self._command = str((folder / entry.command).absolute()) if "/" in entry.command else entry.command
        self._interactive = terminal and entry.interactive_mode != "Never"
        self._spec = {"interactive": self._interactive} | ({} if cluster is None else {"cluster": cluster})
        self._kept: Credential | None = None
        self._run: asyncio.Task[Credential] | None = None
        self.limit_s = INTERACTIVE_RUN_S if self._interactive else RUN_S
        """ How long the plugin may run. """

    def __str__(self) -> str:
        return self._description

    async def credential(self, refused: Credential | None = None) -> Credential:
        """Return a valid credential; run the plugin if the last one is about to expire or was rejected.

        Args:
            refused: the credential that the API server rejected; None: the API server rejected no credential.

        Raises:
            LogInFailed: the plugin returned no credential.
        """
        if self._run is None:
            if self._kept is not None and self._kept is not refused and not _is_due(self._kept):
                return self._kept
            self._run = asyncio.create_task(self._renew())
            self._run.add_done_callback(self._forget)
        return await asyncio.shield(self._run)  # a cancelled request must not end the run for the other requests

    def _forget(self, run: asyncio.Task[Credential]) -> None:
        self._run = None
        if not run.cancelled():
            run.exception()  # asyncio warns about an exception that nobody reads, and perhaps no request waits any more

    async def _renew(self) -> Credential:
        self._kept = read_answer(await self._output(), self._entry.api_version, self._description)
        return self._kept

    # -- Running the plugin --------------------------------------------------------------------------------------------

    async def _output(self) -> bytes:
        running = self._start()
        try:
            async with asyncio.timeout(self.limit_s):
                await running.end()
        except TimeoutError:
            raise LogInFailed(
                f"{self} did not end within {self.limit_s:g} s and was killed: run kubectl with the same kubeconfig to "
                "see what it waits for"
            ) from None
        finally:
            await running.kill(with_children=not self._interactive)
        if status := running.process.returncode:
            how = f"with status {status}" if status > 0 else f"by signal {-status}"
            raise LogInFailed(f"{self} ended {how}: {_last_line(running.errors)}; fix that, and try again")
        return running.output

    def _start(self) -> "_Running":
        entry = self._entry
        info = {"apiVersion": entry.api_version, "kind": "ExecCredential", "spec": self._spec}
        try:
            process = subprocess.Popen(
                [self._command, *(entry.args or ())],
                stdin=None if self._interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=os.environ
                | {each.name: each.value for each in entry.env or ()}
                | {"KUBERNETES_EXEC_INFO": json.dumps(info, default=str)},
                start_new_session=not self._interactive,  # lets kill() also kill the plugin's children
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            hint = _one_line(entry.install_hint or "") or "install it, or put it where $PATH finds it"
            raise LogInFailed(f"{self} cannot be started ({reason}): {hint}") from error
        return _Running(process, echo=self._interactive)


class _Running:
    """A running plugin and its output so far.

    This class replaces asyncio's subprocess. The start of an asyncio subprocess can be cancelled, for example when the
    event loop ends. asyncio then waits for ever for pipes that are never connected (`_wait` in
    asyncio/base_subprocess.py of Python 3.11).

    Args:
        process: just started; both of its outputs are pipes.
        echo: whether to copy the plugin's stderr to the terminal at once: it may contain a question to the user.
    """

    def __init__(self, process: subprocess.Popen[bytes], echo: bool) -> None:
        self.process, self._echo = process, echo
        self.output = self.errors = b""
        self._loop = asyncio.get_running_loop()
        self._closed = asyncio.Event()
        self._pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
            self._loop.add_reader(pipe.fileno(), self._read_pipe, pipe)

    async def end(self) -> None:
        """Wait until the plugin has ended, and until all of its children that inherited the pipes have closed them."""
        await self._closed.wait()
        while self.process.poll() is None:
            await asyncio.sleep(_POLL_S)

    async def kill(self, with_children: bool) -> None:
        """Kill the plugin if it still runs, and close this process's ends of the pipes.

        The plugin's children may keep their ends open.
        """
        if self._pipes or self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL) if with_children else self.process.kill()
        for pipe in list(self._pipes):
            self._close(pipe)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_WAIT_S):
                await self.end()

    def _read_pipe(self, pipe: IO[bytes]) -> None:
        data: bytes | None = pipe.read(_READ)
        if data is None:  # the event loop reported data, but there is none
            return
        if not data:
            self._close(pipe)
        elif pipe is self.process.stdout:
            self.output = (self.output + data)[-_OUTPUT_MAX:]
        else:
            self.errors = (self.errors + data)[-_OUTPUT_MAX:]
            if self._echo:
                sys.stderr.write(data.decode(errors="replace"))
                sys.stderr.flush()

    def _close(self, pipe: IO[bytes]) -> None:
        self._loop.remove_reader(pipe.fileno())
        pipe.close()
        self._pipes.remove(pipe)
        if not self._pipes:
            self._closed.set()


def _is_due(credential: Credential) -> bool:
    return credential.renew_at is not None and datetime.now(UTC) >= credential.renew_at


def _last_line(text: bytes) -> str:
    lines = [line for line in map(_one_line, text.decode(errors="replace").splitlines()) if line]
    return lines[-1] if lines else "it printed no reason"


def _one_line(text: str) -> str:
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())[:_LINE_MAX].rstrip(".")
