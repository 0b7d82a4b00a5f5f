"""Processes that are set up together take turns where they time themselves.

A measurement starts its processes all at once. What one of them finds out about itself while another warms up beside
it (how long a step takes, so how long a stall has to be) would differ from start to start. So they build side by side,
and time themselves one after the other while nobody builds. The lock is the kernel's: it ends with its holder.
"""

import contextlib
import fcntl
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path


def building() -> contextlib.AbstractContextManager[None]:
    """Use the GPU beside others that build."""
    return _locked(fcntl.LOCK_SH)


def timing() -> contextlib.AbstractContextManager[None]:
    """Have the GPU to oneself, among processes of this user on the same GPU that keep to these rules."""
    return _locked(fcntl.LOCK_EX)


@contextlib.contextmanager
def _locked(how: int) -> Iterator[None]:
    gpu = zlib.crc32(os.environ.get("CUDA_VISIBLE_DEVICES", "").encode())
    path = Path(tempfile.gettempdir()) / f"orion-bench-{os.getuid()}-{gpu:08x}.lock"
    with open(path, "a") as lock:  # closing it gives the lock back
        fcntl.flock(lock, how)
        yield
