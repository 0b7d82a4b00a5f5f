"""The gRPC address of the agent's administrators' socket, also where the path is too long for a socket address."""

import os
from pathlib import Path

SOCKET = "agent.sock"
_PATH_MAX = 100
""" Bytes; the kernel's bound is 107. """


class SocketAddress:
    """The socket of one root; to be closed when no channel may connect any more.

    Args:
        root: the agent's directory.

    Raises:
        OSError: the directory is not there, and its path too long.
    """

    def __init__(self, root: Path) -> None:
        self._folder = -1
        path = f"{root}/{SOCKET}"
        if len(os.fsencode(path)) > _PATH_MAX:
            self._folder = os.open(root, os.O_PATH | os.O_CLOEXEC)
            path = f"/proc/self/fd/{self._folder}/{SOCKET}"
        self.target = f"unix:{path}"
        """ What a channel is made for. """

    def close(self) -> None:
        """Forget the directory."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1
