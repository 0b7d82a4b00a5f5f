"""The per-GPU shared state: the policy page, the slots, and the client at each index."""

from collections import Counter, deque
from collections.abc import Iterable

from orion.errors import Exhausted, NotFound
from orion.hook import layout
from orion.node_agent.clients.client import Client, ClientKey
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.pages import agent_pages
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.slots.parking_state import GpuParking
from orion.node_agent.slots.slot import Slot
from orion.node_agent.state.state_file import RememberedClient, gpu_text

_RESERVE = 8
""" The number of client indexes that are reserved for each slot, however many clients the other slots have. """
_LAST_GENERATION = 2**32 - 1


class SharedGpu:
    """The pages, slots and clients of one GPU.

    Args:
        gpu: the GPU.
        policy: how the clients share the GPU.
        next_generation: the next client's generation. Generations never repeat on a GPU, also across agent restarts.
        default_policy: the policy while no GPUShare sets one; None: `policy`.
    """

    def __init__(
        self,
        gpu: Gpu,
        policy: Policy,
        next_generation: int = 1,
        default_policy: Policy | None = None,
    ) -> None:
        self.gpu = gpu
        self.policy = policy
        self.default_policy = default_policy or policy
        self.page = agent_pages.PolicyPage(gpu.uuid)
        self.page.write(policy)
        self.slots: dict[str, Slot] = {}
        self.clients: dict[int, Client] = {}
        self.awaited: dict[int, RememberedClient] = {}
        """ Clients of the previous agent that have not returned yet. """
        self.living_hp: dict[ClientKey, Client] = {}
        """ hp clients whose pages are sealed; be clients may get these pages. """
        self.next_generation = next_generation
        self.stopped: set[Client] = set()
        self.hp_busy_ratio = 0.0
        self.parking = GpuParking()
        self._free = deque(range(layout.GPU_CLIENTS_MAX))
        self._taken: Counter[str] = Counter()

    def slot(self, name: str) -> Slot:
        """Return the slot of that name.

        Raises:
            NotFound: the GPU has no slot of that name.
        """
        try:
            return self.slots[name]
        except KeyError:
            known = ", ".join(sorted(self.slots)) or "none"
            raise NotFound(f"GPU {self.gpu.uuid} has no slot {name!r}; its slots are: {known}") from None

    def free_name(self, role: layout.Role) -> str:
        """Return a name for another slot of that role."""
        return next(name for name in (f"{role.name.lower()}-{i}" for i in range(1000)) if name not in self.slots)

    def has_clients(self, slot: Slot) -> bool:
        """Return whether a process uses a slot, or one of the previous agent's clients may still return to it."""
        return bool(self.of_slot(slot)) or any(each.slot == slot.name for each in self.awaited.values())

    def set_policy(self, policy: Policy) -> None:
        """Change how the clients share the GPU; each client reads the policy at its next check."""
        if policy != self.policy:
            self.policy = policy
            self.page.write(policy)

    def take_index(self, slot: Slot) -> ClientKey:
        """Reserve a client index and a generation for a client of ``slot``.

        Raises:
            Exhausted: no index is free, or the free ones are reserved for other slots.
        """
        reserve = min(_RESERVE, layout.GPU_CLIENTS_MAX // (2 * max(1, len(self.slots))))
        kept = sum(max(0, reserve - self._taken[name]) for name in self.slots if name != slot.name)
        if len(self._free) <= kept or self.next_generation > _LAST_GENERATION:
            raise Exhausted("all client indexes of this GPU are in use; end another process of this slot")
        generation = self.next_generation
        self.next_generation += 1
        self._taken[slot.name] += 1
        return self._free.popleft(), generation

    def free_index(self, slot_name: str, client_index: int) -> None:
        """Free a client index; it is reused as late as possible."""
        self._taken[slot_name] -= 1
        self._free.append(client_index)

    def await_return(self, remembered: Iterable[RememberedClient]) -> None:
        """Keep the indexes of clients that an earlier agent knew."""
        for client in remembered:
            if client.slot in self.slots and client.place in self._free:
                self._free.remove(client.place)
                self._taken[client.slot] += 1
                self.awaited[client.place] = client

    def add(self, client: Client) -> None:
        """Add a client at the index that was reserved for it."""
        self.clients[client.key[0]] = client

    def put_back(self, client: Client, before: Client | None) -> None:
        """Undo `add` of a client that came back, but has not heard that: ``before`` has its index, or it is awaited."""
        if before is None:
            del self.clients[client.key[0]]
        else:
            self.clients[client.key[0]] = before

    def show(self, client: Client) -> None:
        """Count a client as living. Its pages must be sealed already."""
        if client.role is layout.Role.HP:
            self.living_hp[client.key] = client
        self._count()

    def remove(self, client: Client) -> None:
        """Remove a client and free its index."""
        client_index = client.key[0]
        del self.clients[client_index]
        self.living_hp.pop(client.key, None)
        self.mark_stopped(client, False)
        self.free_index(client.slot.name, client_index)
        self._count()

    def mark_stopped(self, client: Client, stopped: bool) -> None:
        """Write to the policy page whether an hp client's process is stopped; be clients read it there."""
        client_index, generation = client.key
        if stopped != (client in self.stopped):
            self.page.mark_stopped(client_index, generation if stopped else 0)
            (self.stopped.add if stopped else self.stopped.discard)(client)

    @property
    def text(self) -> str:
        """What the next agent needs to know about this GPU, as JSON."""
        slots = [slot.text for slot in self.slots.values()]
        clients = [client.text for client in self.clients.values()]
        clients += [each.model_dump_json() for each in self.awaited.values()]
        return gpu_text(self.gpu.uuid, self.next_generation, self.policy, self.default_policy, slots, clients)

    def of_role(self, role: layout.Role) -> list[Client]:
        """Return the living clients of a role."""
        return [client for client in self.clients.values() if client.ready and client.role is role]

    def of_slot(self, slot: Slot) -> list[Client]:
        """Return all clients of a slot, including those that are still joining."""
        return [client for client in self.clients.values() if client.slot is slot]

    def _count(self) -> None:
        ready = sum(client.ready for client in self.clients.values())
        self.page.count(len(self.living_hp), ready - len(self.living_hp))
