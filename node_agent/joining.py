"""How a process becomes a client, stays one and leaves: the agent's side of `hook/include/orion/join.h`."""

import asyncio
import logging
import random
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial

from orion.hook import join, layout
from orion.node_agent import descriptors, liveness, messages, returning, seating
from orion.node_agent.accepting import Entrance
from orion.node_agent.boards import Board, BoardFull
from orion.node_agent.clients import Client
from orion.node_agent.connections import Connection
from orion.node_agent.knowledge import GPU_ENTRIES
from orion.node_agent.neighbours import Neighbours
from orion.node_agent.slots import SOCKET, Slot

_log = logging.getLogger(__name__)

_HELLO_SECONDS = 5.0
_READY_SECONDS = 10.0
_STUCK_SECONDS = 10.0
_RETRY_SPREAD = 10


class Refused(Exception):
    """A HELLO that is answered with REFUSED."""

    def __init__(self, code: join.Refusal, sentence: str, retry_ms: int = 0) -> None:
        super().__init__(sentence)
        self.code = code
        self.retry_ms = retry_ms


class Counters:
    """What the agent has seen of joining, for its metrics."""

    def __init__(self) -> None:
        self.joins: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.adopted = 0


class Joining:
    """All entrances of one GPU's board.

    Args:
        board: the board.
        counters: shared by all boards.
        pending_max: undecided connections that each slot may have.
        save: writes the state file; called before a client is told its place.
        on_change: called when clients came or left.
    """

    def __init__(
        self,
        board: Board,
        counters: Counters,
        pending_max: int,
        save: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self._board = board
        self._counters = counters
        self._pending_max = pending_max
        self._save, self._on_change = save, on_change
        self._loop = asyncio.get_running_loop()
        self._neighbours = Neighbours(board)
        self._entrances: dict[str, Entrance] = {}
        self._undecided: dict[Connection, tuple[Slot, asyncio.TimerHandle]] = {}
        self._clients: dict[Connection, Client] = {}

    def open(self, slot: Slot) -> None:
        """Listen for a slot's clients."""
        arrived = partial(self._arrived, slot)
        self._entrances[slot.name] = Entrance(slot.directory, SOCKET, self._pending_max, arrived)

    def close(self, slot: Slot) -> None:
        """End a slot's connections, clients included, and listen no more."""
        self.forget_all(slot)
        self._entrances.pop(slot.name).close()

    def gone(self) -> str | None:
        """Return a slot whose socket is not where processes look for it; None: all are."""
        return next((name for name, entrance in self._entrances.items() if not entrance.is_there), None)

    def forget_all(self, slot: Slot) -> None:
        """Forget every client of a slot, those of an agent before this one included."""
        for connection in [each for each, (of, _) in self._undecided.items() if of is slot]:
            self._end_undecided(connection)
        for client in self._board.of_slot(slot):
            self.forget(client, "its slot was ended or made ready for another container")
        for place in [place for place, each in self._board.awaited.items() if each.slot == slot.name]:
            self._board.awaited.pop(place)
            self._board.unseat(slot.name, place)
        slot.joins.fill()
        self._entrances[slot.name].refill()

    def forget(self, client: Client, why: str) -> None:
        """Free a client's place and tell its neighbours."""
        if self._clients.pop(client.connection, None) is None:
            return
        self._board.remove(client)
        client.release()
        _log.debug("client: %s %s at %s left: %s", client.slot.name, client.process_id, client.seat, why)
        self._changed(client)

    def look(self, now_ns: int) -> None:
        """Find clients that died, continued, or do not read what they are sent."""
        for client in list(self._board.clients.values()):
            if client.ready and client.busy.owner_died:
                self.forget(client, "its process has died")
            stuck = client.connection.stuck_since
            if stuck is not None and self._loop.time() - stuck > _STUCK_SECONDS:
                self.forget(client, "it does not read what it is sent")
            elif not client.ready and now_ns - client.joined_ns > _READY_SECONDS * 1e9:
                self.forget(client, "it was welcomed and never said that it is ready")
        for client in list(self._board.stopped):
            self._board.mark_stopped(client, liveness.is_stopped(client.process_id))

    def give_up_awaiting(self) -> None:
        """Drop the clients of an earlier agent that did not come back."""
        for place, each in list(self._board.awaited.items()):
            _log.info("client: %s %s at %s did not come back", each.slot, each.process_id, each.seat)
            del self._board.awaited[place]
            self._board.unseat(each.slot, place)
        self._neighbours.changed()

    def stop(self) -> None:
        """Let go of all sockets; clients go on under what the pages say."""
        self._neighbours.close()
        for entrance in self._entrances.values():
            entrance.close()
        for connection in list(self._undecided):
            self._end_undecided(connection)
        for client in list(self._clients.values()):
            client.release()

    def _arrived(self, slot: Slot, sock: socket.socket) -> None:
        try:
            connection = Connection(sock, self._received, self._ended, self._writable)
        except OSError:
            sock.close()
            self._entrances[slot.name].settled()
            return
        timer = self._loop.call_later(_HELLO_SECONDS, self._end_undecided, connection)
        self._undecided[connection] = slot, timer

    def _decide(self, connection: Connection) -> Slot:
        slot, timer = self._undecided.pop(connection)
        timer.cancel()
        self._entrances[slot.name].settled()
        return slot

    def _end_undecided(self, connection: Connection) -> None:
        self._decide(connection)
        connection.close()

    def _received(self, connection: Connection, data: bytes, fds: list[int]) -> None:
        try:
            message = messages.parse(data)
        except messages.MalformedMessage:
            self._break_off(connection)
            return
        client = self._clients.get(connection)
        if client is not None:
            if isinstance(message, join.Ready) and not client.ready:
                self._ready(client)
            elif isinstance(message, join.Learnt) and client.ready:
                client.slot.knowledge.merge(message, GPU_ENTRIES // len(self._board.slots))
            elif isinstance(message, join.Report):
                client.condition = messages.printable(message.text, 112)
            else:
                self._break_off(connection)
            return
        slot = self._decide(connection)
        if isinstance(message, join.Hello):
            self._hello(slot, connection, message, fds)
        else:
            if isinstance(message, join.Suspect):
                self._suspect(message.place, message.generation)
            connection.close()

    def _hello(self, slot: Slot, connection: Connection, hello: join.Hello, fds: list[int]) -> None:
        try:
            version = self._admit(slot, hello)
            if hello.flags & join.HELLO_RETURNS:
                self._welcome_back(slot, connection, hello, fds, version)
            else:
                self._welcome(slot, connection, hello, version)
        except Refused as refusal:
            self._counters.refusals[refusal.code.name.lower()] += 1
            connection.send(messages.refused(refusal.code, str(refusal), refusal.retry_ms))
            connection.close()
        finally:
            descriptors.close_foreign(fds)

    def _admit(self, slot: Slot, hello: join.Hello) -> int:
        """Return the layout version to speak, or raise `Refused`."""
        wait = slot.joins.take()
        if wait:
            retry_ms = int(1000 * wait * random.uniform(1, _RETRY_SPREAD)) + 1
            raise Refused(join.Refusal.RATE, "too many processes of this slot join at once; try again", retry_ms)
        version: int = min(layout.LAYOUT_VERSION, hello.layout_newest)
        if version < max(layout.LAYOUT_OLDEST, hello.layout_oldest):
            raise Refused(
                join.Refusal.LAYOUT,
                f"the agent speaks layouts {layout.LAYOUT_OLDEST} to {layout.LAYOUT_VERSION}, "
                f"the hook {hello.layout_oldest} to {hello.layout_newest}",
            )
        return version

    def _welcome(self, slot: Slot, connection: Connection, hello: join.Hello, version: int) -> None:
        command = messages.printable(hello.command, 16)
        try:
            client = seating.seat(self._board, slot, connection, command)
        except BoardFull:
            raise Refused(join.Refusal.FULL, "no place is left on this GPU for more processes of this slot") from None
        except OSError as error:
            raise Refused(join.Refusal.FULL, f"the agent has no room: {error.strerror}", 1000) from None
        self._clients[connection] = client
        self._save()
        self._counters.joins[slot.role.name.lower()] += 1
        fds = [self._board.page.descriptor, slot.page.descriptor, *client.writable]
        connection.send(messages.welcome(slot.role, version, *client.seat, returned=False), fds)

    def _ready(self, client: Client) -> None:
        try:
            client.seal()
        except OSError:
            self.forget(client, "it sealed its pages in a way of its own")
            return
        client.inform()
        self._settle_in(client)

    def _welcome_back(
        self, slot: Slot, connection: Connection, hello: join.Hello, fds: list[int], version: int
    ) -> None:
        remembered = self._board.awaited.get(hello.place)
        before = self._board.clients.get(hello.place)
        if before is not None:
            # Its connection broke and ours has not noticed yet.
            remembered = returning.as_remembered(before)
        try:
            if remembered is None or (remembered.slot, remembered.generation) != (slot.name, hello.generation):
                raise returning.NotOurs("this agent does not know the client; it may join anew")
            client = returning.take_back(slot, connection, remembered, fds)
        except returning.NotOurs as reason:
            raise Refused(join.Refusal.PAGES, str(reason)) from None
        if before is not None:
            self._clients.pop(before.connection, None)
            self._board.mark_stopped(before, False)
            before.release()
            client.stale = before.sent | before.stale
        else:
            self._board.awaited.pop(hello.place)
        self._board.add(client)
        self._clients[connection] = client
        client.stale |= {each.seat for each in self._board.awaited.values()}
        self._counters.adopted += 1
        answer = messages.welcome(slot.role, version, *client.seat, returned=True)
        connection.send(answer, [self._board.page.descriptor, slot.page.descriptor])
        self._settle_in(client)

    def _settle_in(self, client: Client) -> None:
        self._board.show(client)
        if client.role is layout.Role.BE:
            self._neighbours.introduce(client)
        self._changed(client)

    def _changed(self, client: Client) -> None:
        if client.role is layout.Role.HP:
            self._neighbours.changed()
        self._on_change()

    def _suspect(self, place: int, generation: int) -> None:
        client = self._board.clients.get(place)
        if client is not None and client.seat == (place, generation) and client.role is layout.Role.HP:
            # How often is bounded by the entrance's pace.
            self._board.mark_stopped(client, liveness.is_stopped(client.process_id))

    def _break_off(self, connection: Connection) -> None:
        self._counters.refusals["malformed"] += 1
        connection.close()
        self._ended(connection)

    def _ended(self, connection: Connection) -> None:
        client = self._clients.get(connection)
        if client is not None:
            self.forget(client, "its connection ended")
        elif connection in self._undecided:
            self._decide(connection)

    def _writable(self, connection: Connection) -> None:
        client = self._clients.get(connection)
        if client is not None and client.ready and client.role is layout.Role.BE:
            self._neighbours.tell(client)
