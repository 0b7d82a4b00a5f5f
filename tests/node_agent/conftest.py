"""Fixtures: an agent process whose GPUs have only names, and a scripted driver for tests of the agent's parts."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.node_agent.gpus.keeper import HealthKeeper
from tests.node_agent.agent_in_cluster import Node
from tests.node_agent.fake_card import Card
from tests.node_agent.mps_daemon import MpsDaemon
from tests.node_agent.parking_cards import QUICK, Cards
from tests.node_agent.running_agent import GPU, AgentProcess
from tests.node_agent.scripted_nvml import ScriptedGpu, ScriptedNvml
from tests.waiting import eventually

__all__ = ["GPU", "AgentProcess", "eventually", "look_until"]

_SOURCE = """
#include <stdint.h>
#include <stdlib.h>
int orion_sim_gpu_count(void) { const char *n = getenv("ORION_SIM_GPUS"); return n ? atoi(n) : 1; }
int orion_sim_gpu_uuid(int i, char *u) {
    __builtin_strcpy(u, "GPU-00000000-0000-4000-8000-000000000000");
    u[39] += i;
    return 0;
}
const char *orion_sim_gpu_name(int i) { (void)i; return "A name"; }
int orion_sim_gpu_memory(int i, uint64_t *total, uint64_t *used) {
    (void)i;
    *total = UINT64_C(8) << 30;
    *used = 0;
    return 0;
}
int orion_sim_gpu_processes(int i, uint32_t *p, uint64_t *m, int n) { (void)i, (void)p, (void)m, (void)n; return 0; }
"""


@pytest.fixture(scope="session")
def gpu_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that names simulated GPUs as the simulated driver does, but has no other function."""
    folder = tmp_path_factory.mktemp("gpus")
    (folder / "names.c").write_text(_SOURCE)
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "names.c"], check=True)
    return library


@pytest.fixture
def stopped_agent(socket_folder: Path, gpu_names: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(socket_folder / "root", gpu_names)
    yield agent
    if agent.process is not None:
        agent.kill()


@pytest.fixture
def agent(stopped_agent: AgentProcess) -> AgentProcess:
    stopped_agent.start()
    return stopped_agent


@pytest.fixture(scope="module")
def refusing_agent(gpu_names: Path) -> Iterator[AgentProcess]:
    """An agent that the tests of a file share: it refuses what they ask, so that nothing of it changes."""
    with tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp") as folder:
        agent = AgentProcess(Path(folder) / "root", gpu_names)
        agent.start()
        yield agent
        agent.kill()


@pytest.fixture
def stopped_node(stopped_agent: AgentProcess, socket_folder: Path) -> Iterator[Node]:
    node = Node(stopped_agent, socket_folder)
    yield node
    node.stop()


@pytest.fixture
def node(stopped_node: Node) -> Node:
    stopped_node.start()
    return stopped_node


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> ScriptedNvml:
    """An NVML library with three GPUs; NVLink connects two of them."""
    library = ScriptedNvml(ScriptedGpu(peers=(1,)), ScriptedGpu(peers=(0,)), ScriptedGpu())
    monkeypatch.setitem(sys.modules, "pynvml", library)
    return library


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every check search for GPUs, even while all are healthy."""
    monkeypatch.setattr("orion.node_agent.gpus.keeper._SEARCH_SECONDS", 0.0)
    monkeypatch.setattr("orion.node_agent.gpus.keeper._SEARCH_WELL_SECONDS", 0.0)


async def look_until(keeper: HealthKeeper, condition: Callable[[], bool]) -> None:
    """Let a keeper check its GPUs until the condition holds."""
    for _ in range(200):
        if condition():
            return
        await keeper.look()
    raise AssertionError("never")


@pytest.fixture
def daemon(socket_folder: Path) -> Iterator[MpsDaemon]:
    """An MPS daemon that the test starts; the fixture ends it."""
    made = MpsDaemon(socket_folder)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.end()


@pytest.fixture
def cards(socket_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cards]:
    """A running agent of a fake GPU; at the end, nobody may have come back where there was no room."""
    card = Card(tmp_path)
    monkeypatch.setenv("ORION_TEST_BOOKS", str(card.file))
    agent = AgentProcess(socket_folder / "root", Card.library(tmp_path))
    agent.start(*QUICK)
    made = Cards(agent, card)
    yield made
    for client in made.clients:
        client.close()
    if agent.process is not None:
        agent.kill()
    assert not card.lost, "a tenant came back where there was no room"
