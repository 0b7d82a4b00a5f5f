"""`orion` as users call it: a separate process, with agents of the simulated GPU."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ORION = [sys.executable, "-m", "orion.cli"]
_SECONDS = 60.0
StartClient = Callable[..., subprocess.Popen[str]]


def orion(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `orion` with these arguments to its end."""
    return subprocess.run([*ORION, *map(str, arguments)], capture_output=True, text=True, timeout=_SECONDS)


def run(root: Path, *options: object, program: Sequence[str] = ("true",)) -> subprocess.CompletedProcess[str]:
    """Run a program under `orion run`, which starts an agent at `root` if none is there."""
    return orion("run", "--simulated", "--root", root, *options, "--", *program)


def end(client: subprocess.Popen[str]) -> None:
    """Make a program end that ends with its standard input; a second call has no effect."""
    for stream in (client.stdin, client.stdout, client.stderr):
        assert stream is not None
        stream.close()
    client.wait(_SECONDS)
