"""Refreshes a GPU in mode `mps`: the context of a process that is no MPS client takes the GPU at intervals.

After each such context switch the clients' small kernels begin sooner for a while (orion.hook.switching says what is
known about that). Clients never depend on refreshing: the control daemon also runs if the process has no memory for its
context, no driver, or an unsuitable compute mode. So a failure is logged once, and the process is started again after a
pause, which grows.

This module does not use `orion.hook.switching.Switcher`, which blocks for up to half a minute until its process runs.
In the event loop, it would block everything. In a thread, it could not be cancelled when the MPS daemon must end.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

from orion.hook import switching
from orion.node_agent.mps import driver_libraries
from orion.node_agent.mps.control import PROGRAM

_log = logging.getLogger(__name__)

_PAUSE_SECONDS = (10.0, 300.0)
""" The first and the longest pause between two starts. The first pause applies again after a process that ran longer
than the longest pause. """
_END_SECONDS = 5.0


class Refresher:
    """Refreshes one GPU while its control daemon runs.

    Args:
        uuid: the GPU's UUID.
        milliseconds: time between two switches; 0: never.
        driver_root: where the driver is mounted, if it is not in this process's own root.
    """

    def __init__(self, uuid: str, milliseconds: float, driver_root: Path) -> None:
        self._uuid, self._milliseconds, self._driver_root = uuid, milliseconds, driver_root
        self._logged = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Refresh the GPU while the `async with` block runs. Raises nothing itself."""
        keeping = asyncio.create_task(self._keep()) if self._milliseconds else None
        try:
            yield
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.wait([keeping])

    async def _keep(self) -> None:
        pause, longest = _PAUSE_SECONDS
        while True:
            began = time.monotonic()
            try:
                failure = await self._once()
            except Exception as error:  # no failure here may end the control daemon or this loop
                failure = repr(error)
            if time.monotonic() - began > longest:
                pause = _PAUSE_SECONDS[0]
            self._log_once(logging.WARNING, f"is not refreshed, the MPS daemon tries again: {failure}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _once(self) -> str:
        """Run the process once; return why it ended."""
        environment = switching.environment(self._uuid, os.environ)
        with contextlib.ExitStack() as while_it_runs:
            if shutil.which(PROGRAM) is None and self._driver_root != Path("/"):
                folder = while_it_runs.enter_context(driver_libraries.linked(self._driver_root))
                if folder is None:
                    return f"there is no CUDA driver below {self._driver_root}"
                environment["LD_LIBRARY_PATH"] = str(folder)
            process = await asyncio.create_subprocess_exec(
                *switching.COMMAND, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                return await self._follow(process)
            finally:
                await _end(process)

    async def _follow(self, process: asyncio.subprocess.Process) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        words = "it wrote nothing"
        try:
            async with asyncio.timeout(switching.START_SECONDS) as limit:
                process.stdin.write(f"every {self._milliseconds:g}\n".encode())
                async for line in process.stdout:
                    words = line.decode(errors="replace").strip() or words
                    if words == "every":
                        limit.reschedule(None)
                        words = "its process ended"
                        self._log_once(logging.INFO, f"is refreshed every {self._milliseconds:g} ms")
        except TimeoutError:
            return f"no context of its own for {switching.START_SECONDS:g} s"
        return words

    def _log_once(self, level: int, what: str) -> None:
        if what != self._logged:
            _log.log(level, "mps: %s: %s", self._uuid, what)
            self._logged = what


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the process. If it is blocked in the driver, do not wait: it ends when the driver returns."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
