"""Ports on loopback for programs that get their port as an option."""

import socket


class Held:
    """A port on loopback that we reserve until a component uses it, and while the component restarts.

    Picking a free port and releasing it is a race that parallel test runs lose. Instead, a socket that is bound with
    SO_REUSEPORT and never listens reserves the port. Only sockets of the same user with that option can share it, and
    the components set it.
    """

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((address, 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port up."""
        self._socket.close()


def free_port() -> int:
    """Return a port on loopback on which nothing listens, for a program without SO_REUSEPORT."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
