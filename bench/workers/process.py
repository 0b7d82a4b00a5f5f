"""What a worker is as a process: quiet, bound to its parent's life, whole lines of replies, a clear end."""

import ctypes
import gc
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any, NoReturn

from orion.bench.workloads import WorkloadError

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29


class Replies:
    """Lines of JSON on what was standard output, whole ones from any thread."""

    def __init__(self) -> None:
        """Take standard output; what is printed from now on goes to standard error."""
        self._file = os.fdopen(os.dup(1), "w", buffering=1)
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def send(self, reply: dict[str, Any]) -> None:
        """Write one line."""
        line = json.dumps(reply) + "\n"
        with self._lock:
            self._file.write(line)


def quiet_process() -> None:
    """Keep this process's life within its parent's, and its sleeps exact; threads that it starts inherit both."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # wake at the arrival, not 50 us after it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle


def stop_collecting() -> None:
    """Keep Python's garbage collector out of what is measured, once everything is set up."""
    gc.collect()
    gc.freeze()
    gc.disable()


def end_with(error: BaseException) -> NoReturn:
    """End the process at once, from any thread: after a CUDA error an orderly end may hang or abort."""
    traceback.print_exception(error)
    said = next((line for line in str(error).splitlines() if line.strip()), "")
    print(f"{type(error).__name__}: {said}", file=sys.stderr, flush=True)
    os._exit(2 if isinstance(error, WorkloadError) else 1)
