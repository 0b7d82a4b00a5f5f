"""A snapshot of many clients with long sentences is larger than gRPC's default limit. All who ask for one get it."""

import asyncio
from pathlib import Path
from typing import Any

import grpc

from orion.injection.agent_link import AgentLink
from orion.node_agent.api import agent_pb2, agent_pb2_grpc
from orion.node_agent.api.client import AgentClient

GPUS, CLIENTS = 8, 512
CLIENT = agent_pb2.Client(condition="a sentence of this length " * 60)


class Large(agent_pb2_grpc.AgentServicer):
    """Answers with as many clients as a node can have."""

    async def GetSnapshot(self, request: Any, context: Any) -> agent_pb2.Snapshot:  # noqa: N802
        slot = agent_pb2.Slot(name="be-0", clients=[CLIENT] * CLIENTS, claim=agent_pb2.ClaimOfSlot())
        return agent_pb2.Snapshot(gpus=[agent_pb2.Gpu(slots=[slot])] * GPUS)


def clients(folder: Path) -> int:
    with AgentClient(folder) as administrator:
        return sum(len(slot.clients) for gpu in administrator.snapshot().gpus for slot in gpu.slots)


async def test_a_large_snapshot_reaches_commands_and_drivers(socket_folder: Path) -> None:
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentServicer_to_server(Large(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{socket_folder}/agent.sock")
    await server.start()
    link = AgentLink(socket_folder, None, None, None, lambda _: None, 5.0)  # type: ignore[arg-type]  # only the folder is used
    try:
        assert await asyncio.to_thread(clients, socket_folder) == GPUS * CLIENTS
        assert len(await link.claims(60.0)) == GPUS
    finally:
        await link.close()
        await server.stop(None)
