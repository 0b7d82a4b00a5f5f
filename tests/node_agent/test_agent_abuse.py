"""A hostile process that misuses its slot's socket harms only its own connection."""

import contextlib
import os
import random
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.hook import join, layout
from orion.node_agent.slots.slot import NOTICES
from tests.node_agent.conftest import AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient, Refused, connect, head, hello, send_with_fds
from tests.waiting import DEADLINE

pytestmark = pytest.mark.quiet

READY = bytes(join.Ready(head(join.MessageType.READY)))
GARBAGE = [
    b"\0",
    b"x" * 4096,
    hello()[:-1],
    hello() + b"\0",
    hello()[:8],
    READY,
    bytes(head(99)),
    bytes(head(join.MessageType.WELCOME)) + bytes(24),
    hello(flags=join.HELLO_RETURNS, place=2**32 - 1, generation=7),
]


def _is_refusal(answer: bytes) -> bool:
    return bool(join.Message.from_buffer_copy(answer).type == join.MessageType.REFUSED)


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_ends_only_the_connection_that_sent_it(agent: AgentProcess, data: bytes) -> None:
    before = agent.descriptors()
    with connect(agent.slot("be-0")) as sock:
        sock.send(data)
        answer = sock.recv(4096)
        assert answer == b"" or _is_refusal(answer)
    eventually(lambda: agent.descriptors() <= before, "the connection's descriptors are closed")


def test_an_empty_message_ends_the_connection(agent: AgentProcess) -> None:
    with connect(agent.slot("be-0")) as sock:
        sock.send(b"")
        assert sock.recv(1) == b""


@pytest.mark.parametrize("data", [hello(), hello(join.HELLO_RETURNS, 3, 3), b"junk", READY], ids=range(4))
def test_unexpected_descriptors_are_closed(agent: AgentProcess, data: bytes) -> None:
    before = agent.descriptors()
    zero = os.open("/dev/zero", os.O_RDWR)
    for count in (1, 2, 3, 253):
        with connect(agent.slot("be-0")) as sock:
            send_with_fds(sock, data, [zero] * count)
            with contextlib.suppress(ConnectionResetError):  # the agent has not read the message
                assert not (answer := sock.recv(4096)) or _is_refusal(answer)
    os.close(zero)
    eventually(lambda: agent.descriptors() <= before, "every descriptor is closed")


def test_a_silent_connection_is_closed(agent: AgentProcess) -> None:
    silent = [connect(agent.slot("be-0"), timeout=15) for _ in range(300)]
    with ProtocolClient(agent.slot("be-1")).join() as other:
        other.receive_message()
    for sock in silent[:100]:
        assert sock.recv(1) == b""
    for sock in silent:
        sock.close()
    with ProtocolClient(agent.slot("be-0")).join() as later:
        later.receive_message()


def _median_join_seconds(agent: AgentProcess, slot: str, joins: int, hp: ProtocolClient | None = None) -> float:
    """Return the median time in which a client joins and receives its first message.

    With `hp`, the time ends when the client has received the message that lists this hp client. The time of a single
    join would vary too much.
    """
    took = []
    for _ in range(joins):
        began = time.monotonic()
        with ProtocolClient(agent.slot(slot)).join() as client:
            if hp is None:
                client.receive_message()
            else:
                client.receive_until({hp.key})
        took.append(time.monotonic() - began)
        time.sleep(0.05)  # stays below the rate limit
    return statistics.median(took)


def _join_again_and_again(directory: Path) -> None:
    with contextlib.suppress(Refused, OSError, EOFError):
        ProtocolClient(directory).join().close()


def _send_garbage(directory: Path) -> None:
    with contextlib.suppress(OSError), connect(directory) as sock:
        for _ in range(100):
            sock.send(random.randbytes(64))


def _report(directory: Path) -> None:
    report = bytes(join.Report(head(join.MessageType.REPORT), 1, 0, b"\xff\x1b[2J" * 20))
    with contextlib.suppress(Refused, OSError, EOFError), ProtocolClient(directory).join() as client:
        client.sock.setblocking(False)
        for _ in range(2000):
            client.sock.send(report)


def _view(directory: Path) -> None:
    with contextlib.suppress(OSError), connect(directory) as sock:
        sock.send(bytes(join.View(head(join.MessageType.VIEW))))
        for descriptor in socket.recv_fds(sock, join.MESSAGE_MAX, 1)[1]:
            os.close(descriptor)


def _notices(directory: Path) -> None:
    turn = bytes(join.Turn(head(join.MessageType.TURN), join.TurnWish.HANDED_BACK, 0))
    zero = os.open("/dev/zero", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock, contextlib.suppress(OSError):
        sock.connect(str(directory / NOTICES))
        for message in [turn, b"", random.randbytes(len(turn)), random.randbytes(4096), hello()] * 20:
            sock.send(message)
            socket.send_fds(sock, [message], [zero] * 100)
    os.close(zero)


@contextlib.contextmanager
def flood(attack: Callable[[Path], None], directory: Path, threads: int = 4) -> Iterator[None]:
    over = threading.Event()

    def again() -> None:
        while not over.is_set():
            attack(directory)

    crowd = [threading.Thread(target=again) for _ in range(threads)]
    for each in crowd:
        each.start()
    yield
    over.set()
    for each in crowd:
        each.join()


@pytest.mark.parametrize(
    "attack",
    [_join_again_and_again, _send_garbage, _report, _view, _notices],
    ids=["joins", "garbage", "reports", "views", "notices"],
)
def test_a_flood_delays_no_other_slot(agent: AgentProcess, attack: Callable[[Path], None]) -> None:
    before = agent.descriptors()
    with flood(attack, agent.slot("be-0")):
        with ProtocolClient(agent.slot("hp-0")).join() as hp:
            assert _median_join_seconds(agent, "be-1", 31, hp) < 0.5  # some milliseconds on an idle machine
        began, at = agent.cpu_seconds(), time.monotonic()
        time.sleep(2.0)  # the agent's CPU time is measured over this time
        used = (agent.cpu_seconds() - began) / (time.monotonic() - at)
    assert used < 0.5, "a flood keeps the agent busy"
    eventually(lambda: agent.descriptors() <= before, "every descriptor is closed")


def test_10000_hp_joins_do_not_disturb_a_be_client(agent: AgentProcess) -> None:
    attempts = 0

    def attack(directory: Path) -> None:
        nonlocal attempts
        with contextlib.suppress(OSError):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            with sock:
                attempts += 1
                sock.connect(str(directory / "agent.sock"))
                sock.send(hello())

    with ProtocolClient(agent.slot("be-0")).join() as be:
        with flood(attack, agent.slot("hp-0"), threads=2):
            eventually(lambda: attempts >= 10_000, "ten thousand attempts", seconds=60)
            assert _median_join_seconds(agent, "be-1", 15) < 0.5
        eventually(lambda: be.policy.get(layout.PolicyPage, "hp_clients") == 0, "all of them are gone", seconds=30)


def test_a_client_that_never_reads_is_removed_and_blocks_no_other(agent: AgentProcess) -> None:
    never_reads = ProtocolClient(agent.slot("be-0")).join()
    with ProtocolClient(agent.slot("be-1")).join() as other:
        eventually(lambda: other.policy.get(layout.PolicyPage, "be_clients") == 2, "both have joined")
        deadline = time.monotonic() + DEADLINE
        while other.policy.get(layout.PolicyPage, "be_clients") == 2:
            assert time.monotonic() < deadline, "the client that never reads is not removed"
            with ProtocolClient(agent.slot("hp-0")).join() as hp:  # two more messages that it does not read
                other.receive_until({hp.key})
            other.receive_until(set())
    never_reads.close()
