"""The plugin asks an agent to prepare a slot while another agent replaces the first one."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from orion.errors import Unavailable
from orion.injection.agent_link import AgentLink
from orion.injection.slots import Slot
from orion.node_agent.api import agent_pb2, agent_pb2_grpc

SLOT = Slot("GPU-0", "be", 0)


class Ending(agent_pb2_grpc.AgentServicer):
    """Answers the first request as an agent that is shutting down, and later ones as its successor."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self.code, self.asked = code, 0

    async def PrepareSlot(self, request: Any, context: Any) -> agent_pb2.PreparedSlot:  # noqa: N802
        self.asked += 1
        if self.asked == 1:
            await context.abort(self.code, "it ends")
        return agent_pb2.PreparedSlot(pod="team/chat")


async def prepared(folder: Path, agent: Ending) -> agent_pb2.PreparedSlot | None:
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentServicer_to_server(agent, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{folder}/agent.sock")
    await server.start()
    link = AgentLink(folder, None, None, None, lambda _: None, 5.0)  # type: ignore[arg-type]  # only the folder is used
    try:
        return await link.prepare(SLOT)
    finally:
        await link.close()
        await server.stop(None)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED])
async def test_a_request_to_an_agent_that_ends_is_sent_to_its_successor(
    socket_folder: Path, code: grpc.StatusCode
) -> None:
    answer = await prepared(socket_folder, agent := Ending(code))
    assert (answer and answer.pod, agent.asked) == ("team/chat", 2)


async def test_a_refused_request_is_not_sent_again(socket_folder: Path) -> None:
    agent = Ending(grpc.StatusCode.NOT_FOUND)
    with pytest.raises(Unavailable, match="it ends"):
        await prepared(socket_folder, agent)
    assert agent.asked == 1
