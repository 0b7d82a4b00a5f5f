"""Answers connections that only ask for something: a client's other threads, and programs that have not joined."""

from collections.abc import Callable

from orion.hook import join, layout
from orion.node_agent.clients import messages
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.connections import Connection
from orion.node_agent.clients.credit import Credit
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.processes import liveness
from orion.node_agent.slots.slot import Slot

_MIB = 1 << 20


class Requests:
    """The requests about one GPU.

    Args:
        shared_gpu: the per-GPU shared state.
        credit: how much memory each client may hold.
        on_turn: called with a be slot and a `join.TurnWish` of one of its clients.
        on_room: answers an hp client that found no room on the GPU for so many bytes.
    """

    def __init__(
        self,
        shared_gpu: SharedGpu,
        credit: Credit,
        on_turn: Callable[[Slot, int], None],
        on_room: Callable[[Client, int], join.CreditAnswer],
    ) -> None:
        self._shared_gpu, self._credit = shared_gpu, credit
        self._on_turn, self._on_room = on_turn, on_room

    def answer(self, slot: Slot, connection: Connection, message: messages.FromClient) -> None:
        """Do what a first message asks for, and answer it if it has an answer."""
        if isinstance(message, messages.Notice):
            self.note(slot, message)
        elif isinstance(message, join.MemoryWish):
            answer = self._may_take if message.head.type == join.MessageType.ROOM else self._may_hold
            connection.send(messages.credit(answer(slot, message)))
        elif isinstance(message, join.View) and not slot.views.take():
            connection.send(messages.shown(), [slot.page.descriptor])

    def note(self, slot: Slot, notice: messages.Notice) -> None:
        """Do what a notice asks for."""
        if isinstance(notice, join.Suspect):
            self._suspect(notice.client_index, notice.generation)
        elif slot.role is layout.Role.BE:
            bucket = slot.asks if notice.wish == join.TurnWish.WANTED else slot.hand_backs
            if not bucket.take():  # beyond so many, the agent's next check sees what the clients want
                self._on_turn(slot, notice.wish)

    def _may_hold(self, slot: Slot, wish: join.MemoryWish) -> join.CreditAnswer:
        client = self._wishing(slot, wish)
        if client is None or slot.memory_wishes.take():
            return join.CreditAnswer.LATER
        return self._credit.asked(client, -(-wish.bytes // _MIB))

    def _may_take(self, slot: Slot, wish: join.MemoryWish) -> join.CreditAnswer:
        client = self._wishing(slot, wish)
        if client is None or slot.room_wishes.take():
            return join.CreditAnswer.LATER
        return self._on_room(client, wish.bytes)

    def _wishing(self, slot: Slot, wish: join.MemoryWish) -> Client | None:
        """Return the client that wants memory; None: it has not returned yet."""
        client = self._shared_gpu.clients.get(wish.client_index)
        is_its = client is not None and client.key[1] == wish.generation and client.slot is slot
        return client if is_its else None

    def _suspect(self, client_index: int, generation: int) -> None:
        client = self._shared_gpu.clients.get(client_index)
        if client is not None and client.key == (client_index, generation) and client.role is layout.Role.HP:
            # The rate limit of the listening socket limits how often this runs.
            self._shared_gpu.mark_stopped(client, liveness.is_stopped(client.process_id))
