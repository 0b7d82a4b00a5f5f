"""The sockets by which the kubelet finds a program: how they are made, recognised, and found without a listener."""

import errno
import os
import socket
import stat
from pathlib import Path

import grpc.aio

Identity = tuple[int, int, int]
""" Device, inode and time of creation; the time is needed because file systems reuse inodes at once. """


async def listen(server: grpc.aio.Server, path: Path) -> None:
    """Start a server on a socket that only root can reach.

    Raises:
        OSError: the socket cannot be made.
    """
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on {path}: {error}") from None
    finally:
        os.umask(before)
    await server.start()


def identity(path: Path) -> Identity | None:
    """Return what distinguishes a socket from earlier sockets at the same path; None if the path is not a socket."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if stat.S_ISSOCK(found.st_mode) else None


def is_served(path: Path) -> bool:
    """Return whether somebody listens on a socket."""
    return _connect(path) in (0, errno.EAGAIN)


def is_abandoned(path: Path) -> bool:
    """Return whether there is a socket on which nobody listens: its process has ended."""
    return _connect(path) == errno.ECONNREFUSED


def _connect(path: Path) -> int:
    """Try to connect; return the error's number, 0 for none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as trial:
        try:
            return trial.connect_ex(str(path))
        except OSError:  # the path is too long for an address
            return errno.ENAMETOOLONG
