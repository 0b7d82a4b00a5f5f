"""Shares a slot's limit of memory among its clients: each has credit, which it spends without a message.

A client that is alone in its slot has the whole limit as credit, so a dead agent costs it nothing. A client that joins
another one has no credit. For more than its credit a client asks, and gets what nobody holds, then what others have
spare. All credits, and what dead processes still hold, are together no more than the limit.

A client publishes what it holds before it looks at its credit. The agent lowers a credit before it looks at what the
client holds, and gives to others only what is then free (`hook/src/memory/memory.h`). So no client has to answer, and a
stopped one delays nobody.

A process holds more than its hook counts: the driver's own memory for contexts, code and the stacks of kernels. The
driver says what each process holds in all. What the hook does not count is part of the slot's sum, so it lowers what
the slot's clients get as credit. A client that has just joined is about to make a context: at first it is charged what
the driver holds at least for others (context_memory.py). A client that says too little is charged in the same way: it
takes from its own slot, and from nobody else. A client that has left the GPU is charged as before: the driver lists
nothing for it, and holds as much for it at once when it comes back.

The earlier agent knew that of clients which come back, and the next one does not. So such a client's slot gives no
credit until the driver has answered; a driver that does not answer is not waited for longer than an allocation waits.

A process that dies holds its memory until the kernel has closed its files, which comes after the death of its threads.
So what it held is free when it is a zombie or gone, and the driver lists it no longer. A client that needs it waits
while the driver has not been asked since the process ended.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from orion.hook.join import CreditAnswer
from orion.node_agent.clients.client import Client, held_mib, is_away, is_young, said_since_asked, says_what_it_holds
from orion.node_agent.clients.context_memory import LEAST_MIB, ContextMemory
from orion.node_agent.clients.former_clients import FormerClients, living, may_live
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.clients.spare_credit import lower, promised_mib, spare_mib
from orion.node_agent.processes.liveness import Program, ends, has_ended
from orion.node_agent.slots.slot import Slot
from orion.node_agent.state.state_file import RememberedClient

_MIB = 1 << 20
_SETTLES_NS = 1_500_000_000
""" For so long the driver's word about a client of an earlier agent is waited for: less than an allocation waits. """
_LISTED_MOST_NS = 10_000_000_000
""" For so long the driver's last answer counts if it says nothing since. """
EXTRA_MIB = 64
""" How much more than it needs a client gets, if others have it spare: fewer requests follow. """


class Credit:
    """The credits of all slots of one GPU.

    Args:
        shared_gpu: the GPU's slots and clients.
    """

    def __init__(self, shared_gpu: SharedGpu) -> None:
        self._shared_gpu = shared_gpu
        self._past: dict[str, FormerClients] = {}
        """ By slot, where they may still hold memory. """
        self._contexts = ContextMemory()
        self._listed: Collection[int] = ()
        """ The processes that the driver has last said to hold memory. """
        self._away: Collection[Client] = ()
        """ Who was not on the GPU when the driver was last asked. """
        self._asked_ns = 0
        """ When the driver was last asked. """
        self._listed_ns = 0
        """ When it was asked for `_listed`. """
        self._is_awaited = False
        """ A client waits until the driver is asked. """
        self.on_wait: Callable[[], None] = lambda: None
        """ Called when a client begins to wait so. """

    def joined(self, client: Client) -> None:
        """Give a client its first credit. Call this before it can have the slot's page."""
        client.program = Program.of(client.process_id)
        if not client.returned and client.last_uncounted_mib is None:
            client.uncounted_mib = self._contexts.expected_mib
        if client.last_uncounted_mib is None and client.left_mib is not None and is_away(client):
            client.uncounted_mib = client.last_uncounted_mib = max(0, client.left_mib - client.record.memory_mib)
        client.slot.page.set_credit(client.key[0], client.record.memory_mib)
        self.look_at(client.slot)

    def left(self, client: Client) -> None:
        """Take back a client's credit, less what its process may still hold."""
        client.slot.page.set_credit(client.key[0], 0)
        held = held_mib(client)  # after its credit, so that it has not grown since
        program = client.program
        if held and program is not None and self._holds(program):
            self._remember(client.slot, program, held)
        self.look_at(client.slot)

    def gave_up(self, remembered: RememberedClient) -> None:
        """Keep what a client of the previous agent may hold, if it lives but did not return: all that nobody has."""
        slot, program = self._shared_gpu.slots.get(remembered.slot), living(remembered)
        if slot is not None and program is not None and slot.grant.memory_limit_bytes:
            clients = self._shared_gpu.of_slot(slot)
            rest = self._most(slot, clients) - sum(map(promised_mib, clients))
            self._remember(slot, program, max(0, rest))

    def _remember(self, slot: Slot, program: Program, mib: int) -> None:
        """Note that a process has left, perhaps again. Without a limit nobody needs to know what it holds."""
        if slot.grant.memory_limit_bytes:
            self._past.setdefault(slot.name, FormerClients()).add(program, mib)

    def forget(self, slot: Slot) -> None:
        """Forget the processes that have left a slot: another container gets it."""
        self._past.pop(slot.name, None)
        self._is_awaited = False

    def asked(self, client: Client, mib: int) -> CreditAnswer:
        """Give a client credit to hold so much in all, if there is so much."""
        slot, clients = client.slot, self._shared_gpu.of_slot(client.slot)
        others = [each for each in clients if each is not client]
        if mib > _limit(slot) - min(client.uncounted_mib, client.last_uncounted_mib or 0):
            return CreditAnswer.NO
        if mib > _limit(slot) - client.uncounted_mib:  # its context may take less than expected
            return CreditAnswer.LATER
        if client.awaits_driver or self._is_unsettled(slot, others) or self._contexts.awaits_driver(client):
            return CreditAnswer.LATER
        self._forget_past(slot, clients)
        most = self._most(slot, clients)
        spare = {each: spare_mib(each) for each in others}
        rest = most - sum(map(promised_mib, others))
        if (lacks := mib - rest - sum(spare.values())) > 0:
            return self._refused(slot, lacks)
        lower(spare, mib - rest, mib + EXTRA_MIB - rest)
        rest = most - sum(map(promised_mib, others))  # others may have spent some just before their credit was lowered
        if rest < mib:
            return CreditAnswer.LATER
        slot.page.set_credit(client.key[0], min(rest, max(mib + EXTRA_MIB, slot.page.credit(client.key[0]))))
        return CreditAnswer.YES

    def _refused(self, slot: Slot, lacks_mib: int) -> CreditAnswer:
        """Answer a client that lacks so much: it waits if processes that end since the last question held it."""
        past = self._past.get(slot.name)
        if past is None or past.ended_mib(self._listed_ns) < lacks_mib:
            return CreditAnswer.NO
        if not self._is_awaited:
            self._is_awaited = True
            self.on_wait()
        return CreditAnswer.LATER

    @property
    def has_clients(self) -> bool:
        """Whether it matters what the driver says."""
        return bool(self._shared_gpu.clients) or bool(self._past)

    @property
    def needs_driver(self) -> bool:
        """Whether it matters soon what the driver says: for credits, or for those who leave and come back."""
        return any(map(_needs_driver, self._shared_gpu.slots.values()))

    @property
    def hurries(self) -> bool:
        """Whether a client of such a slot may be making its context, or waits until the driver is asked."""
        clients = self._shared_gpu.clients.values()
        return self._is_awaited or any(is_young(each) and _needs_driver(each.slot) for each in clients)

    def asks(self) -> None:
        """Note what all clients say that they hold. Call this before the driver is asked."""
        self._asked_ns = time.monotonic_ns()
        for slot in self._shared_gpu.slots.values():
            slot.page.asks()
        self._away = set(filter(is_away, self._shared_gpu.clients.values()))
        for client in self._shared_gpu.clients.values():
            client.said_mib = client.record.memory_mib

    def answered(self, held: Mapping[int, int | None] | None) -> None:
        """Take the driver's answer: how many bytes each process holds, by its id; None: it does not say.

        A process for which alone it does not say, such as one that ends, changes nothing for others.
        An answer may lack a process, so only the second one in a row that lacks it says that it holds nothing.
        Clients allocate and free meanwhile, and the answer is of some moment since the question. So what was known
        stays, unless all that a client has held since contradicts it; and the smaller one of two answers counts.
        """
        self._is_awaited = False
        waited = self._contexts.answered(self._shared_gpu.clients.values(), self._asked_ns)
        if held is None:  # what has ended may still be there, as by the last answer; but not for ever
            if self._asked_ns - self._listed_ns > _LISTED_MOST_NS:
                self._listed, self._listed_ns = frozenset(), self._asked_ns
            return
        self._listed, self._listed_ns = held.keys(), self._asked_ns
        contexts: list[int] = []
        making: list[Client] = []
        for client in self._shared_gpu.clients.values():
            was_listed, client.is_listed = client.is_listed, client.process_id in held
            holds = held.get(client.process_id)
            if holds is None and (client.is_listed or was_listed):
                continue
            client.awaits_driver &= client.joined_ns >= self._asked_ns
            least, said = said_since_asked(client)
            listed = -(-(holds or 0) // _MIB)
            if listed:
                client.listed_mib = listed
            if client.before_lowering[1] < self._asked_ns:
                client.before_lowering = 0, 0
            if not listed and (client in self._away or is_away(client)):
                if client.last_uncounted_mib is None:  # nobody has seen what the driver holds for it
                    client.uncounted_mib = max(client.uncounted_mib, self._contexts.expected_mib)
                continue
            # Where the driver lists more than the client counts, a guess is no knowledge of this client.
            known = client.uncounted_mib if listed < said else min(client.uncounted_mib, client.last_uncounted_mib or 0)
            now = min(max(known, listed - said), max(0, listed - least))
            before, client.last_uncounted_mib = None if client in waited else client.last_uncounted_mib, now
            client.uncounted_mib = now if before is None else min(now, before)
            if is_young(client):
                making += [client] if before is None or client.uncounted_mib < LEAST_MIB else []
            elif listed and listed >= said:  # else it is away, or allocates
                contexts.append(max(now, before or 0))
            if client in waited and listed:
                contexts.append(now)
        self._contexts.learn(contexts)
        for client in making:
            client.uncounted_mib = max(client.uncounted_mib, self._contexts.expected_mib)
        self.look()

    def changes(self, slot: Slot, limit_bytes: int) -> None:
        """Note what the clients of a slot hold within its limit, if the limit becomes lower. Call this before that."""
        clients, before = self._shared_gpu.of_slot(slot), slot.grant.memory_limit_bytes
        most = min(before or self._shared_gpu.gpu.memory_bytes, self._shared_gpu.gpu.memory_bytes)
        if 0 < limit_bytes < most and sum(map(held_mib, clients)) * _MIB <= most:
            now = time.monotonic_ns()
            for client in clients:
                client.before_lowering = held_mib(client), now

    def look(self) -> None:
        """Look at each slot with a limit (`look_at`)."""
        now = time.monotonic_ns()
        for client in self._shared_gpu.clients.values():
            client.awaits_driver &= now - client.joined_ns < _SETTLES_NS
        slots = [slot for slot in self._shared_gpu.slots.values() if slot.grant.memory_limit_bytes]
        if not slots:
            return
        of_slot: defaultdict[str, list[Client]] = defaultdict(list)
        for client in self._shared_gpu.clients.values():
            of_slot[client.slot.name].append(client)
        for slot in slots:
            self._look_at(slot, of_slot[slot.name])

    def look_at(self, slot: Slot) -> None:
        """Give back what dead processes held, and the whole limit to a client alone; write what the slot uses."""
        if slot.grant.memory_limit_bytes:
            self._look_at(slot, self._shared_gpu.of_slot(slot))

    def _look_at(self, slot: Slot, clients: Collection[Client]) -> None:
        self._forget_past(slot, clients)
        self._show(slot, clients)
        if len(clients) == 1 and slot.name not in self._past and not self._is_unsettled(slot, clients):
            (alone,) = clients
            whole = max(0, -(-slot.grant.memory_limit_bytes // _MIB) - alone.uncounted_mib)
            if slot.page.credit(alone.key[0]) != whole:
                slot.page.set_credit(alone.key[0], whole)
            return
        excess = sum(map(promised_mib, clients)) - self._most(slot, clients)
        if excess > 0:  # the limit was lowered, or a client of an earlier hook has grown
            lower({each: spare_mib(each) for each in clients}, excess, excess)

    def _show(self, slot: Slot, clients: Collection[Client]) -> None:
        """Write what the slot uses. A client knows better than the agent what its own hook counts at each moment."""
        counted = {client: client.record.memory_mib for client in clients}
        used = sum(counted.values()) + sum(each.uncounted_mib for each in clients) + self._past_mib(slot)
        slot.page.set_used(used)
        for client, mib in counted.items():
            slot.page.set_besides(*client.key, used - mib)

    def _forget_past(self, slot: Slot, clients: Iterable[Client]) -> None:
        """Forget processes that have ended, and those that have joined again and said what they hold."""
        past = self._past.get(slot.name)
        if past is None:
            return
        for client in clients:
            if client.record.credit_epoch == slot.page.epoch:
                past.forget_process(client.process_id)
        past.look(ends, self._holds)
        if not past:
            del self._past[slot.name]

    def _holds(self, program: Program) -> bool:
        """Return whether a program may still hold memory: it has its files, or the driver lists it.

        If it has ended and another one has its process id, the driver lists that one.
        """
        return not has_ended(program) or (program.process_id in self._listed and Program.of(program.process_id) is None)

    def _most(self, slot: Slot, clients: Collection[Client]) -> int:
        """Return how much all credits of a slot may be together, in MiB."""
        return _limit(slot) - self._past_mib(slot) - sum(each.uncounted_mib for each in clients)

    def _past_mib(self, slot: Slot) -> int:
        return self._past[slot.name].sum_mib if slot.name in self._past else 0

    def _is_unsettled(self, slot: Slot, clients: Iterable[Client]) -> bool:
        """Return whether this agent does not know yet what clients of an earlier one hold or may still take."""
        waits = any(each.slot == slot.name and may_live(each) for each in self._shared_gpu.awaited.values())
        return waits or any(each.awaits_driver or (each.returned and not says_what_it_holds(each)) for each in clients)


def _needs_driver(slot: Slot) -> bool:
    return slot.grant.memory_limit_bytes != 0 or slot.memory_sharing.parks


def _limit(slot: Slot) -> int:
    return slot.grant.memory_limit_bytes // _MIB
