"""Keeps the root of containers out of the processes of the agent and of the MPS daemon.

A tenant's socket tells it which process is at the other end (SO_PEERPIDFD, Linux 6.5), and to a process with no more
capabilities than its own, root may reach in: `pidfd_getfd` would give it the descriptors of every tenant's pages. The
agent has fewer capabilities than containers have by default, so the kernel's comparison of them protects nothing. It
lets nobody into a process that is not dumpable, but for those with CAP_SYS_PTRACE, as the node's administrators have.
"""

import ctypes
import os

_SET_DUMPABLE = 4


def become() -> None:
    """Make this process undumpable if it is root's; another user's tenants are that user's own processes.

    Raises:
        OSError: the kernel refuses.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_DUMPABLE): {os.strerror(error)}")
