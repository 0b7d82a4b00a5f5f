"""Runs a program that the kernel kills when our parent process ends, for whatever reason the parent ends.

    python tethered.py PARENT_PID LIKE PROGRAM ARGUMENT...

LIKE is the ID of a process whose mounts and host name the program shares, or 0 for none.

This is a separate program because prctl(PR_SET_PDEATHSIG) must run between fork and exec, where a parent with threads
may not run Python code. Entering another mount namespace has the same restriction. The death signal depends on the
parent's thread that started us, so start components from the main thread.
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
    """Return the parent's ID from our /proc, because getppid() is 0 if the parent is in an outer PID namespace."""
    with open("/proc/self/status") as status:
        found = re.search(r"(?m)^PPid:\s*(\d+)", status.read())
    return int(found[1]) if found else 0


def _enter_namespaces_of(process: str) -> None:
    here = os.getcwd()
    paths = {kind: f"/proc/{process}/ns/{name}" for name, kind in NAMESPACES.items()}
    opened = {kind: os.open(path, os.O_RDONLY | os.O_CLOEXEC) for kind, path in paths.items()}
    for kind, namespace in opened.items():
        _checked(_libc.setns(namespace, kind), "setns")
    with contextlib.suppress(FileNotFoundError):  # if it does not exist there, stay in the root of the new mounts
        os.chdir(here)


def main() -> None:
    """Request the death signal, then run the program."""
    parent, like, *command = sys.argv[1:]
    _checked(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
    if _parent() != int(parent):
        sys.exit("the parent process ended before the program started")
    if like != "0":
        _enter_namespaces_of(like)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
