"""Fixtures: an agent process whose GPUs have only names, and a scripted driver for tests of the agent's parts."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from orion.node_agent.gpus.keeper import HealthKeeper
from tests.node_agent.mps_daemon import MpsDaemon
from tests.node_agent.scripted_nvml import ScriptedGpu, ScriptedNvml
from tests.waiting import eventually

__all__ = ["GPU", "AgentProcess", "eventually", "look_until"]

GPU = "GPU-00000000-0000-4000-8000-000000000000"

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


class AgentProcess:
    """An agent that can be killed and started again with the same root."""

    def __init__(self, root: Path, library: Path) -> None:
        self.root = root
        self.library = library
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        """ The log of the agent that was started last. """
        self.metrics_port = 0
        """ From the agent's log, if it serves metrics. """

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "orion.node_agent", "--root", str(self.root)),
            *("--gpus", "simulated", "--simulated-library", str(self.library), "--metrics-address", "", *options),
        ]

    def start(self, *options: str) -> None:
        self.process = subprocess.Popen(self.command(*options), stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if " metrics: on " in line:
                self.metrics_port = int(line.rpartition(":")[2].partition("/")[0])
            if " agent: serves " in line:
                break
        assert self.process.poll() is None, "the agent ended at once"
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,))
        self._reader.start()

    def log(self) -> str:
        """Return the log of the agent that was started last."""
        return "".join(self.lines)

    def _read(self, stderr: IO[str]) -> None:
        for line in stderr:
            self.lines.append(line)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(10)
        assert self.process.stderr is not None
        self._reader.join()  # ends with the agent, whose stderr no other process has
        self.process.stderr.close()
        self.process = None
        return status

    def slot(self, name: str, gpu: str = GPU) -> Path:
        return self.root / "gpus" / gpu / name

    def descriptors(self) -> int:
        """Return the number of open descriptors: the minimum of five counts, because a write opens a file briefly."""
        counts = []
        for _ in range(5):
            counts.append(len(os.listdir(f"/proc/{self.pid}/fd")))
            time.sleep(0.002)
        return min(counts)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
