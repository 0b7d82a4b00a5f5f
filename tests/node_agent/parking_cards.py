"""An agent of a fake GPU, quick in parking, with tenants that a test commands."""

import os
from collections.abc import Callable

from orion.hook import layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from tests.node_agent.fake_card import MIB, Card, Tenant
from tests.node_agent.protocol_client import ProtocolClient
from tests.node_agent.running_agent import GPU, AgentProcess

GIB = 1 << 30
QUICK = (
    *("--parking-reserve-mib", "0", "--parking-margin-mib", "64", "--parking-stay-factor", "1"),
    *("--parking-answer-seconds", "3", "--parking-retry-seconds", "4"),
)


class Cards:
    """An agent of a fake GPU of 8 GiB, and the tenants on it."""

    def __init__(self, agent: AgentProcess, card: Card) -> None:
        self.agent, self.card = agent, card
        self.clients: list[ProtocolClient] = []

    def administrator(self) -> AgentClient:
        return AgentClient(self.agent.root)

    def be(self, slot: str, mib: int, limit: int = 0) -> Tenant:
        with self.administrator() as administrator:
            administrator.set_grant(GPU, slot, memory_parks=True, memory_limit_bytes=limit)
        tenant = Tenant.on(self.card, self.agent.slot(slot), mib)
        self.clients.append(tenant)
        return tenant

    def of_this_process(self, slot: str, mib: int) -> Tenant:
        """Open a slot of the program that the test's process stands for, and let its first process join."""
        with self.administrator() as administrator:
            administrator.open_slot(GPU, agent_pb2.BE, name=slot, owner_process_id=os.getpid(), memory_parks=True)
        tenant = Tenant.on(self.card, self.agent.slot(slot), mib)
        self.clients.append(tenant)
        return tenant

    def joins(self, tenant: Tenant, mib: int, says: bool = True) -> Tenant:
        """Let another process join a tenant's slot. `says`: it says at once what it holds."""
        late = Tenant.on(self.card, tenant.directory, mib, says)
        self.clients.append(late)
        return late

    def hp(self, mib: int = 0, wait_ms: int = 30_000, limit: int = 0) -> ProtocolClient:
        """Let hp join. What it holds before others join is no growth, for which room would be kept free."""
        with self.administrator() as administrator:
            administrator.set_grant(GPU, "hp-0", memory_wait_ms=wait_ms, memory_limit_bytes=limit)
        client = ProtocolClient(self.agent.slot("hp-0")).join()
        self.clients.append(client)
        assert self.hold(client, mib)
        return client

    def hold(self, hp: ProtocolClient, mib: int) -> bool:
        if not self.card.hold(hp, mib):
            return False
        hp.record.set(layout.RecordPage, "memory_bytes", mib * MIB)
        return True

    def leaves(self, hp: ProtocolClient) -> None:
        """End hp, so that no room is kept free for it."""
        assert self.hold(hp, 0)
        hp.close()
        self.clients.remove(hp)

    def slot(self, name: str) -> agent_pb2.Slot:
        with self.administrator() as administrator:
            return next(slot for slot in administrator.snapshot().gpus[0].slots if slot.name == name)

    def parking(self, name: str) -> agent_pb2.Parking:
        return self.slot(name).parking

    def is_in(self, name: str, state: str) -> Callable[[], bool]:
        return lambda: self.parking(name).state == state

    def conditions(self, name: str) -> dict[str, str]:
        return {each.reason: each.message for client in self.slot(name).clients for each in client.conditions}

    def restart(self, *options: str) -> None:
        """Kill the agent and start the next one; the tenants' threads rest until they have their new pages."""
        self.agent.kill()
        tenants = [each for each in self.clients if isinstance(each, Tenant)]
        obedient = [each for each in tenants if each.thread is not None]
        for tenant in obedient:
            tenant.rest()
        self.agent.start(*QUICK, *options)
        for client in self.clients:
            client.return_to_agent()
        for tenant in obedient:
            tenant.obey()
