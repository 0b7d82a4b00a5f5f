"""Checks whether an MPS daemon runs on this node, which programs reach it, and what sharing a context means.

A program uses the daemon whose pipes are in the folder that CUDA_MPS_PIPE_DIRECTORY names (/tmp/nvidia-mps if unset).
Without such a daemon it runs as if MPS did not exist. So a daemon with another folder silently splits the clients
into two groups.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from orion.cli.checks import Check, note, ok

NAME = "MPS"
_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT = "/tmp/nvidia-mps"
_COMMAND = "nvidia-cuda-mps"  # /proc/PID/comm has only the first 15 characters, without -control or -server
_FATE = (
    "its clients share one context: a fault of one client, or the server's end, ends all of them; Orion's own state "
    "survives"
)
_QUIT = "for full isolation, end it with `echo quit | nvidia-cuda-mps-control`"


def examine(proc: Path = Path("/proc")) -> Iterator[Check]:
    """Look for an MPS daemon in the process table, and in the folder where programs started here would look for it."""
    folder = Path(os.environ.get(_VARIABLE) or _DEFAULT)
    daemons = dict(_daemons(proc))
    here = (folder / "control").exists()
    if not daemons:
        yield _none(folder, here)
        return
    numbers = ", ".join(map(str, sorted(daemons)))
    if here:
        yield note(NAME, f"a daemon runs (process {numbers}, pipes in {folder}): {_FATE}", _QUIT)
        return
    others = sorted({pipes for pipes in daemons.values() if pipes})
    where = f"; its pipes are in {', '.join(others)}" if others else ""
    yield note(
        NAME,
        f"a daemon runs (process {numbers}), but programs started here do not reach it: "
        f"{folder} has no pipe of it{where}. "
        f"Programs that reach it and programs that do not are time-sliced. For those that reach it: {_FATE}",
        f"set {_VARIABLE} to its folder for all programs, or for none; {_QUIT}",
    )


def _none(folder: Path, here: bool) -> Check:
    if here:
        return note(
            NAME,
            f"no daemon is visible from here, but {folder} has the pipes of one: it has ended, or runs outside this "
            f"container; if it runs: {_FATE}",
            f"if it has ended, remove {folder}; {_QUIT}",
        )
    return ok(
        NAME,
        "no daemon: every client has its own context and survives faults of other clients. A max slowdown above 1 "
        "needs a daemon, or clients that are threads of one process",
    )


def _daemons(proc: Path) -> Iterator[tuple[int, str]]:
    """Yield process ids and, where this user may read it, the folder of the pipes."""
    for command in proc.glob("[0-9]*/comm"):
        try:
            if not command.read_text().startswith(_COMMAND):
                continue
        except OSError:
            continue  # ended meanwhile
        yield int(command.parent.name), _pipes(command.parent / "environ")


def _pipes(environment: Path) -> str:
    try:
        variables = environment.read_bytes().split(b"\0")
    except OSError:
        return ""
    name = f"{_VARIABLE}=".encode()
    found = [each[len(name) :] for each in variables if each.startswith(name)]
    return os.fsdecode(found[0]) if found else _DEFAULT
