"""The GPUs at one moment, as plain values for the API and the metrics.

A snapshot is taken on the event loop, so no client joins or leaves meanwhile; any thread may render it. Numbers are as
the clients wrote them: any unsigned number. Texts are short and printable.
"""

import time
from dataclasses import dataclass, field, replace
from typing import Protocol

from orion.hook import layout
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.counters import Counters
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.gpus.usage import MemoryUsage
from orion.node_agent.pages import agent_pages, client_pages
from orion.node_agent.pages.plans import Plan
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.sharing import policies
from orion.node_agent.sharing.conditions import Condition
from orion.node_agent.sharing.reasons import Facts, Reason, reasons
from orion.node_agent.sharing.served import ServedGpu, ServesGpus
from orion.node_agent.sharing.usage import SlotUsage
from orion.node_agent.slots.claim import Claim
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.parking_state import GpuParking, SlotParking
from orion.node_agent.slots.slot import Slot

_MOST = 2**64 - 1
""" What the figures of the agent's API can hold. """
_RUNNING_NS = 200_000_000


@dataclass(frozen=True)
class ClientView:
    """A client that has joined."""

    client_index: int
    generation: int
    process_id: int
    command: str
    state: str
    conditions: tuple[Condition, ...]
    joined_seconds_ago: float
    busy_ns: int
    gated_ns: int
    """ Includes a wait that has not ended. """
    counted_ns: int
    """ When the launches were counted (CLOCK_MONOTONIC). """
    record: client_pages.Record
    """ As the client wrote it. `memory_bytes` includes what the hook does not count: see `clients/credit.py`. """


@dataclass(frozen=True)
class SlotView:
    """A slot and its clients."""

    gpu: str
    name: str
    role: layout.Role
    directory: str
    grant: agent_pages.Grant
    profile_kernels: int
    learnt_kernels: int
    clients: tuple[ClientView, ...]
    rule: str = ""
    """ The id in the resource file that decides the grant; empty: none does. """
    claim: Claim | None = None
    """ The ResourceClaim that has the slot. """
    usage: SlotUsage = field(default_factory=SlotUsage)
    plan: Plan | None = None
    """ be: its turns. """
    debt_ns: float = 0.0
    """ be: what it has used beyond what it was due. """
    memory_sharing: MemorySharing = field(default_factory=MemorySharing)
    parking: SlotParking = field(default_factory=SlotParking)
    parking_seconds: float = 0.0
    """ For how long its memory has been where `parking` says; 0: it is on the GPU. """
    reasons: tuple[Reason, ...] = ()
    """ Why it has the GPU time that it has. """
    owner_process_ids: tuple[int, ...] = ()
    """ The processes for which it was made. """


@dataclass(frozen=True)
class GpuView:
    """A GPU and its slots."""

    gpu: Gpu
    policy: Policy
    hp_busy_ratio: float
    memory_used_bytes: int
    slots: tuple[SlotView, ...]
    conditions: tuple[Condition, ...]
    parking: GpuParking = field(default_factory=GpuParking)


@dataclass(frozen=True)
class AgentView:
    """All GPUs, and counters of joins."""

    gpus: tuple[GpuView, ...]
    joins: dict[str, int]
    refusals: dict[str, int]
    adopted: int
    taken_ns: int
    """ CLOCK_MONOTONIC. """


class Seen(ServesGpus, Protocol):
    """What `take` needs from an agent."""

    @property
    def usage(self) -> MemoryUsage:
        """Knows how much of their memory is in use."""

    @property
    def counters(self) -> Counters:
        """Counters of joins and refusals."""


async def take(agent: Seen) -> AgentView:
    """Return the current state of all GPUs."""
    await agent.usage.refresh([served.shared_gpu.gpu for served in agent.gpus.values()])
    counters = agent.counters
    return AgentView(
        gpus=tuple(of_gpu(served, agent.usage.known(served.shared_gpu.gpu)) for served in agent.gpus.values()),
        joins=dict(counters.joins),
        refusals=dict(counters.refusals),
        adopted=counters.adopted,
        taken_ns=time.monotonic_ns(),
    )


def of_gpu(served: ServedGpu, memory_used_bytes: int) -> GpuView:
    """Return the current state of one GPU."""
    shared_gpu = served.shared_gpu
    served.conditions.look()
    return GpuView(
        gpu=shared_gpu.gpu,
        policy=shared_gpu.policy,
        hp_busy_ratio=shared_gpu.hp_busy_ratio,
        memory_used_bytes=memory_used_bytes,
        slots=tuple(of_slot(served, slot) for slot in shared_gpu.slots.values()),
        conditions=served.conditions.gpu,
        parking=shared_gpu.parking,
    )


def of_slot(served: ServedGpu, slot: Slot) -> SlotView:
    """Return the current state of one slot."""
    now = time.monotonic_ns()
    clients = [client for client in served.shared_gpu.of_slot(slot) if client.ready]
    facts = _facts(served, slot, len(clients))
    return SlotView(
        gpu=slot.gpu,
        name=slot.name,
        role=slot.role,
        directory=str(slot.directory),
        grant=slot.grant,
        rule=slot.rule,
        claim=slot.claim,
        profile_kernels=slot.knowledge.profiled,
        learnt_kernels=slot.knowledge.learnt,
        clients=tuple(_of_client(served, client, now) for client in clients),
        usage=served.usage.of(slot.name),
        plan=slot.plan,
        debt_ns=facts.debt_ns,
        memory_sharing=slot.memory_sharing,
        parking=replace(slot.parking),
        parking_seconds=(now - slot.parking.since_ns) / 1e9 if slot.parking.state else 0.0,
        reasons=tuple(reasons(facts)),
        owner_process_ids=tuple(each.process_id for each in (slot.owner, *slot.sharers) if each is not None),
    )


def _facts(served: ServedGpu, slot: Slot, clients: int) -> Facts:
    slots, is_hp = served.shared_gpu.slots.values(), slot.role is layout.Role.HP
    account, window = served.turns.accounts.get(slot.name), served.turns.accounts.taken.get(slot.name)
    active = [each for each in slots if each.role is layout.Role.BE and each.name in served.usage.slots]
    return Facts(
        is_hp=is_hp,
        clients=clients,
        request=served.shared_gpu.policy.values()["request"] if is_hp else slot.grant.request_milli / 1_000,
        limit=(slot.grant.limit_milli or 1_000) / 1_000,
        requests=sum(each.grant.request_milli for each in active) / 1_000,
        parts=served.usage.of(slot.name).recent,
        debt_ns=account.debt_ns if account else 0.0,
        window=window.end - window.begin if window else 0.0,
        unordered=not policies.takes_turns(served.shared_gpu.policy, slots),
    )


def whole_memory(said: int, uncounted_mib: int) -> int:
    """Return what a process holds, in bytes: what it says, which may be anything, and what its hook does not count."""
    return min(said + (uncounted_mib << 20), _MOST)


def _of_client(served: ServedGpu, client: Client, now: int) -> ClientView:
    stopped = client in served.shared_gpu.stopped
    counted_ns = client.record.counted_ns
    record = client.record.read()
    if client.uncounted_mib:
        record = replace(record, memory_bytes=whole_memory(record.memory_bytes, client.uncounted_mib))
    since = record.waiting_since_ns
    return ClientView(
        client_index=client.key[0],
        generation=client.key[1],
        process_id=client.process_id,
        command=client.command,
        state="stopped" if stopped else _state(client, record, now),
        conditions=served.conditions.client(client.key),
        joined_seconds_ago=(now - client.joined_ns) / 1e9,
        busy_ns=client.record.busy_ns(now),
        gated_ns=record.gated_ns + (now - since if 0 < since < now else 0),
        counted_ns=counted_ns,
        record=record,
    )


def _state(client: Client, record: client_pages.Record, now: int) -> str:
    if client.role is layout.Role.HP:
        return client.busy.state.name.lower()
    if client.is_parked:
        return "parked"
    if record.waiting_since_ns:
        return "gated"
    running = record.in_flight_ns or record.launches != client.last_launches
    return "running" if running or now - client.last_wanted_ns < _RUNNING_NS else "idle"
