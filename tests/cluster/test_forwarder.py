"""Tests of the forwarder, the stand-in for a network and for a Service, because other tests depend on it."""

import contextlib
import gc
import socket
import warnings
from collections.abc import Iterator

from tests.cluster.forwarder import Forwarder


@contextlib.contextmanager
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


def connected(forwarder: Forwarder, listening: socket.socket) -> tuple[socket.socket, socket.socket]:
    near = socket.create_connection(("127.0.0.1", forwarder.port), timeout=10)
    far, _ = listening.accept()
    far.settimeout(10)
    return near, far


def test_the_last_data_arrives_before_the_end() -> None:
    with server() as listening, Forwarder(listening.getsockname) as forwarder:
        near, far = connected(forwarder, listening)
        with near, far:
            sent = b"x" * 3_000_000
            near.sendall(sent)
            near.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: far.recv(65_536), b"")) == sent


def test_the_forwarder_leaves_no_socket_open() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with server() as listening:
            with Forwarder(listening.getsockname) as forwarder:
                near, far = connected(forwarder, listening)
            with near, far:
                assert (near.recv(1), far.recv(1)) == (b"", b"")
        gc.collect()
    assert [str(each.message) for each in found] == []


def test_connections_made_just_before_the_end_are_closed() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with server() as listening:
            for _ in range(20):
                with Forwarder(listening.getsockname) as forwarder:
                    late = [socket.create_connection(("127.0.0.1", forwarder.port), timeout=10) for _ in range(10)]
                for each in late:
                    each.close()
                gc.collect()
    assert [str(each.message) for each in found] == []


def test_connections_without_a_target_end() -> None:
    with Forwarder(lambda: None) as forwarder, socket.create_connection(("127.0.0.1", forwarder.port), 10) as near:
        assert near.recv(1) == b""


def test_connections_can_be_ended_and_new_ones_made() -> None:
    with server() as listening, Forwarder(listening.getsockname) as forwarder:
        near, far = connected(forwarder, listening)
        with near, far:
            forwarder.end_connections()
            assert (near.recv(1), far.recv(1)) == (b"", b"")
        near, far = connected(forwarder, listening)
        near.close()
        far.close()
