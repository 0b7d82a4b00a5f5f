"""How a process becomes a client, returns and leaves: the agent's side of `hook/include/orion/join.h`."""

import asyncio
import logging
from collections.abc import Callable

from orion.errors import Conflict, Exhausted, Invalid
from orion.hook import join, layout
from orion.node_agent.clients import messages, new_client, returning
from orion.node_agent.clients.admission import JoinRefused, admit
from orion.node_agent.clients.arrivals import Arrivals
from orion.node_agent.clients.client import Client, is_going
from orion.node_agent.clients.connections import Connection
from orion.node_agent.clients.counters import Counters
from orion.node_agent.clients.credit import Credit
from orion.node_agent.clients.jobs import Jobs
from orion.node_agent.clients.neighbours import Neighbours
from orion.node_agent.clients.requests import Requests
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.pages import client_pages
from orion.node_agent.processes import liveness
from orion.node_agent.slots.knowledge import GPU_ENTRIES
from orion.node_agent.slots.slot import Slot

_log = logging.getLogger(__name__)

_READY_SECONDS = 10.0
_STUCK_SECONDS = 10.0
_RETRY_MS = 1_000
""" When a process shall try again for which the system lacks descriptors or memory. """


class Joining:
    """The listening sockets and clients of one GPU.

    Args:
        shared_gpu: the per-GPU shared state.
        counters: shared by all GPUs.
        jobs: shared by all GPUs.
        pending_max: maximum number of connections of each slot that have not sent their first message.
        save: writes the state file; called before the agent sends a client its index.
        on_change: called when clients joined or left.
        on_turn: called with a be slot and a `join.TurnWish` of one of its clients.
        on_room: answers a client that found no room on the GPU for so many bytes, or asks first.
    """

    def __init__(
        self,
        shared_gpu: SharedGpu,
        counters: Counters,
        jobs: Jobs,
        pending_max: int,
        save: Callable[[], None],
        on_change: Callable[[], None],
        on_turn: Callable[[Slot, int], None],
        on_room: Callable[[Client, int], join.CreditAnswer],
    ) -> None:
        self._shared_gpu = shared_gpu
        self._counters = counters
        self._jobs = jobs
        self._save, self._on_change = save, on_change
        self._loop = asyncio.get_running_loop()
        self._neighbours = Neighbours(shared_gpu)
        self.credit = Credit(shared_gpu)
        """ How much memory each client may hold. """
        self._requests = Requests(shared_gpu, self.credit, on_turn, on_room)
        self._arrivals = Arrivals(pending_max, self._received, self._ended, self._writable, self._requests.note)
        self._clients: dict[Connection, Client] = {}

    def open(self, slot: Slot) -> None:
        """Listen for a slot's clients."""
        self._arrivals.open(slot)

    def close(self, slot: Slot) -> None:
        """Close a slot's socket and connections; remove its clients."""
        self._forget_all(slot)
        self._arrivals.close(slot)

    def reset(self, slot: Slot) -> None:
        """Remove a slot's clients; the next ones are those of another container."""
        self._forget_all(slot)
        self._arrivals.renew(slot)

    def held_by(self, slot: Slot, pod: str) -> None:
        """Note which pod holds a slot. Clients that have joined before belong to the pod's job from now on."""
        slot.holder = pod
        for client in self._shared_gpu.of_slot(slot):
            if client.ready:
                self._jobs.joined(client)

    def gone(self) -> str | None:
        """Return the name of a slot whose socket file is gone; None: all exist."""
        return self._arrivals.gone()

    def _forget_all(self, slot: Slot) -> None:
        """Remove every client of a slot, including those of the previous agent."""
        self._arrivals.end_all(slot)
        for client in self._shared_gpu.of_slot(slot):
            self.forget(client, "its slot was closed or reset for another container")
        for client_index in [index for index, each in self._shared_gpu.awaited.items() if each.slot == slot.name]:
            self._shared_gpu.awaited.pop(client_index)
            self._shared_gpu.free_index(slot.name, client_index)
        self.credit.forget(slot)
        slot.joins.fill()

    def forget(self, client: Client, why: str) -> None:
        """Remove a client, free its index and notify its neighbours."""
        if self._clients.pop(client.connection, None) is None:
            return
        self._shared_gpu.remove(client)
        self._jobs.left(client)
        client.release()
        client.let_stay(False)
        self.credit.left(client)
        _log.debug("client: %s %s at %s left: %s", client.slot.name, client.process_id, client.key, why)
        self._changed(client)

    def look(self, now_ns: int) -> None:
        """Remove clients that died or do not read their messages; check whether stopped clients run again."""
        for client in list(self._shared_gpu.clients.values()):
            if client.ready and client.busy.owner_died:
                self.forget(client, "its process has died")
            stuck = client.connection.stuck_since
            if stuck is not None and self._loop.time() - stuck > _STUCK_SECONDS:
                self.forget(client, "it does not read the agent's messages")
            elif not client.ready and now_ns - client.joined_ns > _READY_SECONDS * 1e9:
                self.forget(client, "it did not send READY after WELCOME")
        for client in list(self._shared_gpu.stopped):
            self._shared_gpu.mark_stopped(client, liveness.is_stopped(client.process_id))
        self.credit.look()

    def give_up_awaiting(self) -> None:
        """Remove the clients of the previous agent that did not return."""
        for client_index, each in list(self._shared_gpu.awaited.items()):
            _log.info("client: %s %s at %s did not return", each.slot, each.process_id, each.key)
            del self._shared_gpu.awaited[client_index]
            self._shared_gpu.free_index(each.slot, client_index)
            self.credit.gave_up(each)
        self._neighbours.changed()

    def stop(self) -> None:
        """Close all sockets; clients continue under their last grants."""
        self._neighbours.close()
        self._arrivals.stop()
        for client in list(self._clients.values()):
            client.release()

    def _received(self, connection: Connection, data: bytes, fds: list[int]) -> None:
        try:
            message = messages.parse(data)
        except Invalid:
            self._break_off(connection)
            return
        client = self._clients.get(connection)
        if client is not None:
            if isinstance(message, join.Ready) and not client.ready:
                self._ready(client)
            elif isinstance(message, join.Learnt) and client.ready:
                client.slot.knowledge.merge(message, GPU_ENTRIES // len(self._shared_gpu.slots))
            elif isinstance(message, join.Report):
                client.condition = client_pages.printable(message.text, 112)
            else:
                self._break_off(connection)
            return
        slot = self._arrivals.settle(connection)
        if isinstance(message, join.Hello):
            self._hello(slot, connection, message, fds)
        else:
            self._requests.answer(slot, connection, message)
            connection.close()

    def _hello(self, slot: Slot, connection: Connection, hello: join.Hello, fds: list[int]) -> None:
        try:
            version = admit(slot, hello)
            if hello.flags & join.HELLO_RETURNS:
                self._welcome_back(slot, connection, hello, fds, version)
            else:
                self._welcome(slot, connection, hello, version)
        except JoinRefused as refusal:
            if hello.layout_newest:  # else it only asks whether an agent answers
                self._counters.refusals[refusal.code.name.lower()] += 1
            connection.send(messages.refused(refusal.code, str(refusal), refusal.retry_ms))
            connection.close()

    def _welcome(self, slot: Slot, connection: Connection, hello: join.Hello, version: int) -> None:
        command = client_pages.printable(hello.command, 16)
        try:
            client = new_client.make(self._shared_gpu, slot, connection, command)
        except Exhausted as reason:
            raise JoinRefused(join.Refusal.FULL, str(reason)) from None
        except OSError as error:
            raise JoinRefused(join.Refusal.FULL, f"the agent cannot make pages: {error.strerror}", _RETRY_MS) from None
        client.keeps_credit = bool(hello.flags & join.HELLO_KEEPS_CREDIT)
        self._clients[connection] = client
        self.credit.joined(client)
        is_away = slot.role is layout.Role.BE and bool(hello.flags & join.HELLO_IS_AWAY)
        is_new = is_away and slot.parking.ask(True)
        client.let_stay(slot.parking.is_asked and not is_away)
        self._save()
        if is_new:
            slot.write_park()
        self._counters.joins[slot.role.name.lower()] += 1
        fds = [self._shared_gpu.page.descriptor, slot.page.descriptor, *client.writable]
        connection.send(messages.welcome(slot.role, version, *client.key, returned=False), fds)

    def _ready(self, client: Client) -> None:
        try:
            client.seal()
        except OSError:
            self.forget(client, "it added its own seals to its pages")
            return
        client.inform()
        self._settle_in(client)

    def _welcome_back(
        self, slot: Slot, connection: Connection, hello: join.Hello, fds: list[int], version: int
    ) -> None:
        remembered = self._shared_gpu.awaited.get(hello.client_index)
        before = self._shared_gpu.clients.get(hello.client_index)
        if before is not None:
            # The client's connection broke, but the agent has not noticed that yet.
            remembered = returning.as_remembered(before)
        try:
            if remembered is None or (remembered.slot, remembered.generation) != (slot.name, hello.generation):
                raise Conflict("this agent does not know the client; it may join as a new client")
            client = returning.take_back(slot, connection, remembered, fds)
        except Conflict as reason:
            raise JoinRefused(join.Refusal.PAGES, str(reason)) from None
        except Exhausted as reason:  # a hook that hears PAGES would give its place up
            raise JoinRefused(join.Refusal.FULL, str(reason), _RETRY_MS) from None
        returning.go_on(client, before)
        client.keeps_credit = bool(hello.flags & join.HELLO_KEEPS_CREDIT)
        self._shared_gpu.add(client)
        self.credit.joined(client)
        self._keep_away(client)
        answer = messages.welcome(slot.role, version, *client.key, returned=True)
        connection.send(answer, [self._shared_gpu.page.descriptor, slot.page.descriptor])
        if connection.has_left:
            # The agent did not run for so long that the client gave up, and asks again: it keeps its place until then.
            self._shared_gpu.put_back(client, before)
            client.let_stay(before is not None and before.stays)
            client.release()
            return
        self._replace(before, client)
        client.stale |= {each.key for each in self._shared_gpu.awaited.values()}
        self._counters.adopted += 1
        self._settle_in(client)

    def _replace(self, before: Client | None, client: Client) -> None:
        """Serve a client that has returned; ``before`` is the same one with a connection that broke."""
        if before is not None:
            self._clients.pop(before.connection, None)
            self._shared_gpu.mark_stopped(before, False)
            self._jobs.left(before)
            before.release()
        self._shared_gpu.awaited.pop(client.key[0], None)
        self._clients[client.connection] = client

    @staticmethod
    def _keep_away(client: Client) -> None:
        """Let a client that has left the GPU's memory stay away, until this agent has seen that it has room.

        One that has not been asked to leave with its slot stays.
        """
        slot, answer = client.slot, client.record.parking
        is_away = is_going(client)
        if is_away and client.role is layout.Role.BE and slot.parking.ask(True):
            slot.write_park()
        client.let_stay(slot.parking.is_asked and not is_away and answer.number != slot.parking.number)

    def _settle_in(self, client: Client) -> None:
        self._shared_gpu.show(client)
        if client.role is layout.Role.BE:
            if client.slot.parking.number:
                client.connection.send(messages.park())
            self._jobs.joined(client)
            self._neighbours.introduce(client)
        self._changed(client)

    def _changed(self, client: Client) -> None:
        if client.role is layout.Role.HP:
            self._neighbours.changed()
        self._on_change()

    def _break_off(self, connection: Connection) -> None:
        self._counters.refusals["malformed"] += 1
        connection.close()
        self._ended(connection)

    def _ended(self, connection: Connection) -> None:
        client = self._clients.get(connection)
        if client is not None:
            self.forget(client, "its connection ended")
        elif connection in self._arrivals:
            self._arrivals.settle(connection)

    def _writable(self, connection: Connection) -> None:
        client = self._clients.get(connection)
        if client is not None and client.ready and client.role is layout.Role.BE:
            self._neighbours.update(client)
