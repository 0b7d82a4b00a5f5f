"""Becomes another program that the kernel kills when our parent ends, however that ends.

    python tethered.py PARENT_PID LIKE PROGRAM ARGUMENT...

LIKE is the id of a process whose mounts and host name it shall see, or 0.

A program of its own because the wish must be stated between fork and exec, and a parent with threads may run no Python
there; the same holds for entering mounts. The wish is bound to the parent's thread that started us: start components
from the main thread.
"""

import contextlib
import ctypes
import os
import re
import signal
import sys

PR_SET_PDEATHSIG = 1
NAMESPACES = {"mnt": 0x00020000, "uts": 0x04000000}
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _parent() -> int:
    """Return our parent as /proc counts; getppid() is 0 where the parent is in an outer PID namespace."""
    with open("/proc/self/status") as status:
        found = re.search(r"(?m)^PPid:\s*(\d+)", status.read())
    return int(found[1]) if found else 0


def _see_what_it_sees(process: str) -> None:
    here = os.getcwd()
    places = {kind: f"/proc/{process}/ns/{name}" for name, kind in NAMESPACES.items()}
    opened = {kind: os.open(place, os.O_RDONLY | os.O_CLOEXEC) for kind, place in places.items()}
    for kind, namespace in opened.items():
        _checked(_libc.setns(namespace, kind), "setns")
    with contextlib.suppress(FileNotFoundError):  # then the root of its mounts it is
        os.chdir(here)


def main() -> None:
    """State the wish, then become the program."""
    parent, like, *command = sys.argv[1:]
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if _parent() != int(parent):
        sys.exit("our parent ended before we began")
    if like != "0":
        _see_what_it_sees(like)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
