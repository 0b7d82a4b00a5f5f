"""Starts a program so that the CUDA driver loads the profiler in it and in its children.

The driver itself loads the library that CUDA_INJECTION64_PATH names, in the first cuInit. This needs no preload and no
linking, and it also works for static CUDA runtimes and for child processes.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from orion.cli.errors import ProgramFailed
from orion.errors import Conflict

INJECTION = "CUDA_INJECTION64_PATH"
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)
_WHEELS = ("nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.12")


def find_cupti(program: Path) -> list[Path]:
    """Return the CUPTI libraries that came with a program: from wheels, conda or a toolkit.

    The profiler itself finds libraries that the dynamic linker finds, or that the program has already loaded.

    Args:
        program: its executable; for an interpreter in a virtual environment, the link in that environment.
    """
    return list(dict.fromkeys(path for path in _candidates(program) if path.is_file()))


def _candidates(program: Path) -> Iterator[Path]:
    prefixes = [
        program.parent.parent,
        *(Path(os.environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if name in os.environ),
    ]
    if program.parent == Path("/usr/bin"):
        prefixes.append(Path("/usr/local"))
    folders = [
        folder
        for prefix in prefixes
        for kind in ("site", "dist")
        for folder in sorted(prefix.glob(f"lib/python3*/{kind}-packages"), reverse=True)
    ]
    for folder in (*folders, *(Path(place) for place in sys.path if place.endswith("-packages"))):
        yield from (folder / wheel for wheel in _WHEELS)
    toolkits = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for folder in (*(prefix / "lib" for prefix in prefixes), *(each / "extras/CUPTI/lib64" for each in toolkits)):
        yield from (folder / f"libcupti.so.{major}" for major in (13, 12))


def run_profiled(command: Sequence[str], library: Path, folder: Path, launches: int) -> int:
    """Run a program to its end and return its status, in the form of a shell's status.

    Args:
        command: the program and its arguments.
        library: the profiler.
        folder: for the profiler's output.
        launches: the number of launches to record individually, in each process.

    Raises:
        ProgramFailed: the program cannot be run.
        Conflict: CUDA_INJECTION64_PATH is already set.
    """
    if INJECTION in os.environ:
        raise Conflict(
            f"{INJECTION} is already set to {os.environ[INJECTION]}, but the driver loads only one tool: unset it"
        )
    program = shutil.which(command[0])
    if program is None:
        raise ProgramFailed(f"{command[0]}: there is no such program", 127)
    environment = os.environ | {
        INJECTION: str(library),
        "ORION_PROFILE_DIRECTORY": str(folder),
        "ORION_PROFILE_LAUNCHES": str(launches),
        "ORION_PROFILE_CUPTI": ":".join(str(path) for path in find_cupti(Path(program).absolute())),
    }
    sys.stdout.flush()
    try:
        process = subprocess.Popen(command, executable=program, env=environment)
    except OSError as error:
        raise ProgramFailed(f"{program} cannot be run: {error.strerror}", 126) from error
    return _wait(process)


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Wait for a program. Pass SIGTERM and SIGHUP on to it; a terminal itself sends Ctrl-C to both processes."""

    def forward(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
