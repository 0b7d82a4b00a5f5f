"""Ports on loopback that stay ours until a component has them, and while it restarts.

To pick a free port and let go of it is a race that parallel test runs lose. A socket that is bound with SO_REUSEPORT
and never listens holds the port: components of the same user may share it (they set the option too), nobody else may.
"""

import socket


class Held:
    """A port that is held as long as this object, or a component on it, lives."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((address, 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Let go of it."""
        self._socket.close()
