"""A lock for processes that start together: they build at the same time, but measure their step times one by one.

A measurement starts all its processes at once. A process measures the time of its own step, and may compute its input
stall from that time. The time would differ from start to start if another process warmed up on the same GPU. So a
process measures its step only while no other process builds or measures. The lock is a file lock: the kernel releases
it when its holder ends.
"""

import contextlib
import fcntl
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from orion.bench.workloads import ranks


def building() -> contextlib.AbstractContextManager[None]:
    """Share the GPU with other processes that build."""
    return _locked(fcntl.LOCK_SH)


def timing() -> contextlib.AbstractContextManager[None]:
    """Keep this user's other processes off the GPU, as far as they use these locks."""
    return _locked(fcntl.LOCK_EX)


@contextlib.contextmanager
def _locked(how: int) -> Iterator[None]:
    if ranks.index() > 0:  # rank 0 has the lock for the whole job
        yield
        return
    gpu = zlib.crc32(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].encode())
    path = Path(tempfile.gettempdir()) / f"orion-bench-{os.getuid()}-{gpu:08x}.lock"
    with open(path, "a") as lock:  # closing the file releases the lock
        fcntl.flock(lock, how)
        yield
