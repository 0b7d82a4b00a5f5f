"""The board of one GPU: its policy page, its slots, and who sits at which place."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import asdict

from orion.hook import layout
from orion.node_agent import pages
from orion.node_agent.clients import Client, Seat
from orion.node_agent.errors import NotFound
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.slots import Slot
from orion.node_agent.state import RememberedClient, RememberedPolicy, gpu_text

_RESERVE = 8
""" Places of a board that each slot can count on, however many clients the other slots have. """
_LAST_GENERATION = 2**32 - 1


class BoardFull(Exception):
    """No place is left for this slot."""


class Board:
    """All pages of one GPU.

    Args:
        gpu: the GPU.
        policy: how its clients share it.
        next_generation: the first one to give; generations never repeat on a GPU, across agents too.
        default_policy: what applies where no share decides; None: the same.
    """

    def __init__(
        self,
        gpu: Gpu,
        policy: pages.Policy,
        next_generation: int = 1,
        default_policy: pages.Policy | None = None,
    ) -> None:
        self.gpu = gpu
        self.policy = policy
        self.default_policy = default_policy or policy
        self.page = pages.PolicyPage(gpu.uuid)
        self.page.write(policy)
        self.slots: dict[str, Slot] = {}
        self.clients: dict[int, Client] = {}
        self.awaited: dict[int, RememberedClient] = {}
        """ Clients of the agent before this one that have not come back yet. """
        self.living_hp: dict[Seat, Client] = {}
        """ Those whose pages are sealed and may be shown to be clients. """
        self.next_generation = next_generation
        self.stopped: set[Client] = set()
        self.hp_busy_ratio = 0.0
        self._free = deque(range(layout.PLACES))
        self._taken: Counter[str] = Counter()

    def slot(self, name: str) -> Slot:
        """Return the slot of that name.

        Raises:
            NotFound: there is none.
        """
        try:
            return self.slots[name]
        except KeyError:
            known = ", ".join(sorted(self.slots)) or "none"
            raise NotFound(f"GPU {self.gpu.uuid} has no slot {name!r}; its slots are: {known}") from None

    def free_name(self, role: layout.Role) -> str:
        """Return a name for another slot of that role."""
        return next(name for name in (f"{role.name.lower()}-{i}" for i in range(1000)) if name not in self.slots)

    def set_policy(self, policy: pages.Policy) -> None:
        """Change how the clients share the GPU; they see it with their next look."""
        if policy != self.policy:
            self.policy = policy
            self.page.write(policy)

    def seat(self, slot: Slot) -> Seat:
        """Take a place for a client of ``slot``.

        Raises:
            BoardFull: none is left, or what is left is kept for other slots.
        """
        reserve = min(_RESERVE, layout.PLACES // (2 * max(1, len(self.slots))))
        kept = sum(max(0, reserve - self._taken[name]) for name in self.slots if name != slot.name)
        if len(self._free) <= kept or self.next_generation > _LAST_GENERATION:
            raise BoardFull
        generation = self.next_generation
        self.next_generation += 1
        self._taken[slot.name] += 1
        return self._free.popleft(), generation

    def unseat(self, slot_name: str, place: int) -> None:
        """Give a place back; it is used again as late as possible."""
        self._taken[slot_name] -= 1
        self._free.append(place)

    def await_return(self, remembered: Iterable[RememberedClient]) -> None:
        """Keep the places of clients that another agent knew."""
        for client in remembered:
            if client.slot in self.slots and client.place in self._free:
                self._free.remove(client.place)
                self._taken[client.slot] += 1
                self.awaited[client.place] = client

    def add(self, client: Client) -> None:
        """Let a client sit at the place that was taken for it."""
        self.clients[client.seat[0]] = client

    def show(self, client: Client) -> None:
        """Count a client whose pages are sealed among the living."""
        if client.role is layout.Role.HP:
            self.living_hp[client.seat] = client
        self._count()

    def remove(self, client: Client) -> None:
        """Take a client off the board and free its place."""
        place = client.seat[0]
        del self.clients[place]
        self.living_hp.pop(client.seat, None)
        self.mark_stopped(client, False)
        self.unseat(client.slot.name, place)
        self._count()

    def mark_stopped(self, client: Client, stopped: bool) -> None:
        """Tell be clients whether an hp client's process is stopped."""
        place, generation = client.seat
        if stopped != (client in self.stopped):
            self.page.mark_stopped(place, generation if stopped else 0)
            (self.stopped.add if stopped else self.stopped.discard)(client)

    @property
    def text(self) -> str:
        """What the next agent needs of it, as JSON."""
        policy = RememberedPolicy.model_validate(asdict(self.policy))
        default = RememberedPolicy.model_validate(asdict(self.default_policy))
        slots = [slot.text for slot in self.slots.values()]
        clients = [client.text for client in self.clients.values()]
        clients += [each.model_dump_json() for each in self.awaited.values()]
        return gpu_text(self.gpu.uuid, self.next_generation, policy, default, slots, clients)

    def of_role(self, role: layout.Role) -> list[Client]:
        """Return the living clients of a role."""
        return [client for client in self.clients.values() if client.ready and client.role is role]

    def of_slot(self, slot: Slot) -> list[Client]:
        """Return all clients of a slot, those that have not finished joining included."""
        return [client for client in self.clients.values() if client.slot is slot]

    def _count(self) -> None:
        ready = sum(client.ready for client in self.clients.values())
        self.page.count(len(self.living_hp), ready - len(self.living_hp))
