"""Process settings of a worker: it ends with its parent and at any error, sleeps precisely and writes whole lines."""

import ctypes
import gc
import json
import os
import signal
import sys
import threading
import traceback
from typing import Any, NoReturn

from orion.errors import OrionError

PR_SET_PDEATHSIG = 1
PR_SET_TIMERSLACK = 29


class Replies:
    """Writes replies as lines of JSON to the original standard output; any thread may send."""

    def __init__(self) -> None:
        """Take over standard output; later prints go to standard error."""
        self._file = os.fdopen(os.dup(1), "w", buffering=1)
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def send(self, reply: dict[str, Any]) -> None:
        """Write one line."""
        line = json.dumps(reply) + "\n"
        with self._lock:
            self._file.write(line)


def configure_process() -> None:
    """End this process when its parent ends, and make its sleeps exact, also in threads that it starts later."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # nanoseconds; the default slack would delay each arrival by 50 us
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C


def stop_collecting() -> None:
    """Disable Python's garbage collector after the set-up, to keep its pauses out of measurements."""
    gc.collect()
    gc.freeze()
    gc.disable()


def end_with(error: BaseException) -> NoReturn:
    """End the process at once, from any thread: after a CUDA error, a normal exit may hang or abort."""
    traceback.print_exception(error)
    said = next((line for line in str(error).splitlines() if line.strip()), "")
    print(f"{type(error).__name__}: {said}", file=sys.stderr, flush=True)
    os._exit(error.exit_status if isinstance(error, OrionError) else 1)
