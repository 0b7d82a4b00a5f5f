"""Threads of a process ask for memory one after the other, so a process that joins need not wait for all of them."""

import select
import socket
import time
from contextlib import ExitStack

from orion.hook import join
from orion.node_agent.clients import connections, messages
from orion.node_agent.slots.slot import SOCKET
from tests.hook.limited_slot import LIMIT, MIB, LimitedTenants
from tests.hook.scripted_client import DEADLINE

REQUESTS = 5
THREADS = 8


class SilentAgent:
    """Listens at the slot's socket in place of the agent; accepts everything and answers nothing."""

    def __init__(self, tenants: LimitedTenants, stack: ExitStack) -> None:
        machine, self._stack = tenants.machine, stack
        directory = machine.root / "gpus" / machine.uuids[0] / "be-0"
        self._listening = stack.enter_context(connections.bind(directory, SOCKET, 0o666, socket.SOCK_SEQPACKET))
        self._listening.listen(1024)
        self._listening.settimeout(DEADLINE)

    def next_request(self) -> socket.socket:
        """Return the next connection that asks for memory. Clients that try to return wait meanwhile."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            sock, _ = self._listening.accept()
            self._stack.enter_context(sock).settimeout(DEADLINE)
            if isinstance(messages.parse(sock.recv(join.MESSAGE_MAX)), join.MemoryWish):
                return sock
        raise AssertionError("nobody asks for memory")


def has_ended(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLHUP)
    return bool(poll.poll(0))


def test_threads_ask_one_after_the_other(tenants: LimitedTenants) -> None:
    one, two = tenants.start(), tenants.start()
    assert one.do(f"alloc {LIMIT * MIB}").result == 0
    tenants.machine.kill_agent()
    with ExitStack() as stack:
        agent, asked = SilentAgent(tenants, stack), list[socket.socket]()
        two.send(f"churn {THREADS} 60 1 0")
        for _ in range(REQUESTS):
            asked.append(agent.next_request())
            assert all(map(has_ended, asked[:-1])), "two threads ask at the same time"
