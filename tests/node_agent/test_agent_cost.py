"""The cost of an agent: idle under 1 % of a core and 80 MB, and little while be slots take turns."""

import contextlib
import itertools
import time

import pytest

from orion.hook import join, layout
from testbed.process_costs import memory_kib
from tests.hook.harness import figure
from tests.node_agent.conftest import AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient
from tests.node_agent.turn_reading import has_turn, takes_turns, wish_and_wait

pytestmark = pytest.mark.usefixtures("by_python")

SLOTS, SECONDS, EARLY_ENDS = 5, 5.0, 10


def test_ten_idle_clients_cost_little(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(10):
            stack.enter_context(ProtocolClient(agent.slot("hp-0" if number == 0 else f"be-{number % 8}")).join())

        def used(seconds: float) -> float:
            before, began = agent.cpu_seconds(), time.monotonic()
            time.sleep(seconds)  # the agent's CPU time is measured over this time
            return (agent.cpu_seconds() - before) / (time.monotonic() - began)

        eventually(lambda: used(3.0) < 0.01, "under 1 % of a core", seconds=30)
        assert memory_kib(agent.pid, "VmRSS") < 80 * 1000


@pytest.mark.quiet
@pytest.mark.parametrize(("gpus", "most"), [(1, 0.10), (8, 0.30)])
def test_competing_slots_cost_little(
    gpus: int, most: float, stopped_agent: AgentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORION_SIM_GPUS", str(gpus))
    stopped_agent.start("--be-slots", str(SLOTS))
    with contextlib.ExitStack() as stack:
        folders = sorted((stopped_agent.root / "gpus").iterdir())
        clients = [
            [stack.enter_context(ProtocolClient(folder / f"be-{slot}").join()) for slot in range(SLOTS)]
            for folder in folders
        ]
        for client in itertools.chain(*clients):
            client.record.set(layout.RecordPage, "in_flight_ns", 100_000)
        eventually(lambda: all(takes_turns(client) for client in itertools.chain(*clients)), "all take turns")
        parts = []
        for ends in (0, EARLY_ENDS):
            before, began = stopped_agent.cpu_seconds(), time.monotonic()
            done = end_turns_early(clients, ends)
            parts.append((stopped_agent.cpu_seconds() - before) / (time.monotonic() - began))
            what = (
                f"{gpus} GPUs, {SLOTS} slots each take turns, {done / SECONDS:.0f} early ends a second: part of a core"
            )
            figure(what, [parts[-1]], "")
    assert max(parts) < most


def end_turns_early(clients: list[list[ProtocolClient]], each_second: int) -> int:
    """Hand back turns on all GPUs, so often a second on each, and want the next one at once; return how many."""
    began, done = time.monotonic(), 0
    while (passed := time.monotonic() - began) < SECONDS:
        for client in itertools.chain(*clients):
            client.record.set(layout.RecordPage, "launches", round(passed * 1_000))
            client.record.set(layout.RecordPage, "gpu_ns", round(passed * 1e9 / SLOTS))
        while done < passed * each_second * len(clients):
            holder = next((client for client in clients[done % len(clients)] if has_turn(client)), None)
            if holder is not None:
                holder.record.set(layout.RecordPage, "in_flight_ns", 0)
                wish_and_wait(holder, join.TurnWish.HANDED_BACK)  # one that wants the GPU before has not handed back
                holder.record.set(layout.RecordPage, "in_flight_ns", 100_000)
                wish_and_wait(holder, join.TurnWish.WANTED)
            done += 1
        time.sleep(0.01)  # between two rounds of early ends
    return done
