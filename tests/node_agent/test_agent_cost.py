"""The cost of an idle agent: under 1 % of a core and 80 MB."""

import contextlib
import time
from pathlib import Path

from tests.node_agent.conftest import AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient


def test_ten_idle_clients_cost_little(agent: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(10):
            stack.enter_context(ProtocolClient(agent.slot("hp-0" if number == 0 else f"be-{number % 8}")).join())

        def used(seconds: float) -> float:
            before, began = agent.cpu_seconds(), time.monotonic()
            time.sleep(seconds)  # the agent's CPU time is measured over this time
            return (agent.cpu_seconds() - before) / (time.monotonic() - began)

        eventually(lambda: used(3.0) < 0.01, "under 1 % of a core", seconds=30)
        status = Path(f"/proc/{agent.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        assert resident < 80 * 1000
