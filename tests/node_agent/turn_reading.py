"""What a client's grant says about its slot's turns, and the messages by which a client hands back and asks."""

import fcntl
import os
import socket
import struct
import termios
import time

from orion.hook import join, layout
from orion.node_agent.slots.slot import NOTICES
from tests.node_agent.protocol_client import ProtocolClient, connect, current_grant, head
from tests.waiting import DEADLINE

PLANNED_SECONDS = 0.02
""" So long the agent takes at most to plan again. """


def takes_turns(client: ProtocolClient) -> bool:
    """Return whether the slot has a plan that has not ended."""
    return bool(current_grant(client.grant).plan_until_ns > time.monotonic_ns())


def turn_left_ns(client: ProtocolClient) -> int:
    """Return for how long the client may still launch by its grant, as hook/src/be/turns.c reads it; 0: it may not."""
    grant, now = current_grant(client.grant), time.monotonic_ns()
    if now >= grant.plan_until_ns:
        return 1 << 62
    if grant.turn_begin_ns <= now < grant.turn_end_ns:
        return int(grant.turn_end_ns - now)
    length = grant.next_end_ns - grant.next_begin_ns
    if length <= 0 or now < grant.next_begin_ns:
        return 0
    return max(0, int(length - (now - grant.next_begin_ns) % grant.cycle_ns))


def has_turn(client: ProtocolClient) -> bool:
    """Return whether the client may launch now, by its grant."""
    return turn_left_ns(client) > 0


def wish(client: ProtocolClient, wanted: join.TurnWish) -> None:
    """Hand back the slot's turn, or ask for one; return once the agent has read it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        _send(sock, client, wanted)
        end = time.monotonic() + DEADLINE
        while _unread(sock):
            assert time.monotonic() < end, "the agent does not read the message"
            time.sleep(0.00005)  # so soon that a client can ask at once after it has handed back


def wish_and_wait(client: ProtocolClient, wanted: join.TurnWish) -> None:
    """Do the same, and return once the agent has planned again, or has not done so for long.

    It waits without frequent looks, which would take the agent's place on its core. The agent plans nothing where a
    check has just seen what the message says.
    """
    before, end = client.grant.get(layout.GrantPage, "plan"), time.monotonic() + PLANNED_SECONDS
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        _send(sock, client, wanted)
        while client.grant.get(layout.GrantPage, "plan") == before and time.monotonic() < end:
            time.sleep(0.002)


def _send(sock: socket.socket, client: ProtocolClient, wanted: join.TurnWish) -> None:
    folder = os.open(client.directory, os.O_PATH)
    try:
        sock.sendto(bytes(join.Turn(head(join.MessageType.TURN), wanted, 0)), f"/proc/self/fd/{folder}/{NOTICES}")
    finally:
        os.close(folder)


def _unread(sock: socket.socket) -> int:
    """Return how many bytes of what a socket has sent nobody has read."""
    (found,) = struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))
    return int(found)


def wish_by_connection(client: ProtocolClient, wanted: join.TurnWish) -> None:
    """Do the same as a hook that finds no socket for datagrams."""
    with connect(client.directory) as sock:
        sock.send(bytes(join.Turn(head(join.MessageType.TURN), wanted, 0)))
        assert sock.recv(1) == b""
