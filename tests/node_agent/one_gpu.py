"""Runs an agent of one GPU inside the test's process and event loop."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orion.node_agent.agent import Agent
from orion.node_agent.gpus.factory import NoGpus
from orion.node_agent.gpus.interface import Gpu
from orion.node_agent.settings import AgentSettings
from orion.node_agent.state.root import Root

GPU = "GPU-00000000-0000-4000-8000-000000000000"


class OneGpu(NoGpus):
    def find(self) -> list[Gpu]:
        return [Gpu(GPU, 0, "A name", 1 << 30, simulated=True)]


@contextlib.contextmanager
def agent_of_one_gpu() -> Iterator[Agent]:
    with tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp") as folder:
        root = Path(folder) / "root"
        agent = Agent(AgentSettings(root=root), Root(root), OneGpu())
        agent.start()
        try:
            yield agent
        finally:
            agent.stop()
            agent.root.close()
