"""Protects the processes of the agent and of the MPS daemon against root in containers.

A tenant's socket shows which process is at its other end (SO_PEERPIDFD, Linux 6.5). Root may access a process that has
no more capabilities than its own: with `pidfd_getfd` it could take the descriptors of every tenant's pages. The agent
has fewer capabilities than containers have by default, so the kernel's comparison of capabilities does not protect it.
But the kernel allows access to a process that is not dumpable only with CAP_SYS_PTRACE, which the node's administrators
have.
"""

import ctypes
import os

_SET_DUMPABLE = 4


def become() -> None:
    """Make this process undumpable if it runs as root.

    If it does not run as root, its tenants run as the same user, and this would not protect it from them.

    Raises:
        OSError: the kernel refuses.
    """
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_DUMPABLE): {os.strerror(error)}")
