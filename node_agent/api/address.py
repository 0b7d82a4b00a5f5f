"""The administrators' socket: its gRPC address, even if its path is too long for one, and the process that listens."""

import os
import socket
import struct
from pathlib import Path

SOCKET = "agent.sock"
MESSAGE_BYTES = 64 << 20
""" The most that an answer of the agent may have: a snapshot lists all clients. gRPC's default is 4 MiB. """
_PATH_MAX = 100
""" In bytes; the kernel's limit is 107. """


class SocketAddress:
    """The administrators' socket of one root. Close this object when no channel needs to connect any more.

    Args:
        root: the agent's root directory.

    Raises:
        OSError: the path is too long, and the directory does not exist.
    """

    def __init__(self, root: Path) -> None:
        self._folder = -1
        path = f"{root}/{SOCKET}"
        if len(os.fsencode(path)) > _PATH_MAX:
            self._folder = os.open(root, os.O_PATH | os.O_CLOEXEC)
            path = f"/proc/self/fd/{self._folder}/{SOCKET}"
        self.target = f"unix:{path}"
        """ The target for a gRPC channel. """

    def close(self) -> None:
        """Close the directory."""
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


def listening_process(root: Path) -> int:
    """Return the agent's process id in this process's pid namespace; 0: the agent is not visible there.

    It is also known of an agent that does not answer.

    Raises:
        OSError: nobody listens at this root.
    """
    address = SocketAddress(root)
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.setblocking(False)  # connects at once, or fails
            asking.connect(address.target.removeprefix("unix:"))
            credentials = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    finally:
        address.close()
    process_id: int = struct.unpack("3i", credentials)[0]
    return process_id
