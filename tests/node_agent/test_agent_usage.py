"""The GPU time of slots in a real agent: a client without progress, a client that lies, and a restart of the agent."""

import contextlib
import threading
import time
from collections.abc import Iterator

from orion.hook import layout
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from tests.node_agent.conftest import AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient

STEP_SECONDS = 0.01


@contextlib.contextmanager
def launching(*clients: ProtocolClient) -> Iterator[None]:
    """Let clients say that they launch all the time."""
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.wait(STEP_SECONDS):
            number += 1
            for client in clients:
                client.record.set(layout.RecordPage, "launches", number)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        over.set()
        worker.join()


def usage(agent: AgentProcess, name: str) -> agent_pb2.Slot:
    with AgentClient(agent.root) as administrator:
        return next(slot for slot in administrator.snapshot().gpus[0].slots if slot.name == name)


def test_a_slot_without_progress_is_explained(agent: AgentProcess) -> None:
    with (
        ProtocolClient(agent.slot("be-0")).join() as works,
        ProtocolClient(agent.slot("be-1")).join() as hangs,
        launching(works),
    ):
        for client in (works, hangs):
            client.record.set(layout.RecordPage, "in_flight_ns", 100_000)
        reasons = eventually(
            lambda: {each.reason: each.message for each in usage(agent, "be-1").reasons if each.reason == "NoProgress"},
            "the agent shuts the slot",
        )
        assert "it made no progress" in reasons["NoProgress"]
        assert usage(agent, "be-0").usage.recent.shut == 0


def test_a_client_that_reports_all_of_eternity_is_measured_all_time(agent: AgentProcess) -> None:
    began = time.monotonic()
    with ProtocolClient(agent.slot("be-0")).join() as client, launching(client):
        client.record.set(layout.RecordPage, "gated_ns", 2**64 - 1)

        def measured() -> agent_pb2.Usage | None:
            client.record.set(layout.RecordPage, "gpu_ns", 2**64 - 1 - client.record.get(layout.RecordPage, "gpu_ns"))
            found = usage(agent, "be-0").usage
            return found if found.measured_seconds > 0.5 else None

        found = eventually(measured, "half a second is measured")
        assert found is not None
        passed = time.monotonic() - began
        assert found.measured_seconds <= passed
        assert found.waited_seconds <= passed


def test_totals_begin_again_with_the_agent(agent: AgentProcess) -> None:
    with ProtocolClient(agent.slot("be-0")).join() as client, launching(client):
        client.record.set(layout.RecordPage, "gpu_ns", 300_000_000)
        eventually(lambda: usage(agent, "be-0").usage.due_seconds > 1, "a second of GPU time is due")
        agent.kill()
        agent.start()
        found = usage(agent, "be-0")
        assert found.usage.due_seconds == found.usage.measured_seconds == 0
        assert [each.reason for each in found.reasons] == ["NoClients"]
