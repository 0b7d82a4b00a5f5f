"""A process that owns a slot and does nothing."""

import contextlib
import subprocess
from collections.abc import Iterator


@contextlib.contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Start the process; it is ended by killing it."""
    with subprocess.Popen(["sleep", "infinity"]) as started:
        try:
            yield started
        finally:
            started.kill()
