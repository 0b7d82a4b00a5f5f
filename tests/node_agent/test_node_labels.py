"""How often an agent asks for the labels of its node."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orion.api_server.requests import ApiError
from orion.node_agent.cluster import node_labels
from orion.node_agent.cluster.context import Context


class Failing:
    async def get(self, path: str, kind: str, **query: str) -> Any:
        raise ApiError(503, "too busy")


async def test_agents_ask_an_api_server_that_does_not_answer_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The agents of 5,000 nodes would otherwise send 2,500 requests a second to an API server in trouble."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    slots = SimpleNamespace(needs_labels=True)
    agent = SimpleNamespace(advertising=SimpleNamespace(slots=slots), root=SimpleNamespace(path=tmp_path))
    context = cast("Context", SimpleNamespace(agent=agent, server=Failing(), node="node"))
    with pytest.raises(asyncio.CancelledError):
        await node_labels.NodeLabels(context).run()
    assert pauses[0] <= 2
    assert all(30 <= pause <= 60 for pause in pauses[6:])
    assert len(set(pauses[6:])) > 1, "agents that failed at the same time ask at different times"
