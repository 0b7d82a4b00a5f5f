"""Becomes another program that the kernel kills when our parent ends, however that ends.

    python tethered.py PARENT_PID PROGRAM ARGUMENT...

A program of its own because the wish must be stated between fork and exec, and a parent with threads may run no Python
there. The wish is bound to the parent's thread that started us: start components from the main thread.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """State the wish, then become the program."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(sys.argv[1]):
        sys.exit("our parent ended before we began")
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
