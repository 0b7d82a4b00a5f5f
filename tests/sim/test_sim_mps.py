"""Clients of a simulated MPS control daemon run together, and lose their contexts when the daemon ends."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.sim.test_sim_sharing import pieces
from tests.sim.worker_process import StartWorker
from tests.waiting import eventually


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    """The folder of a running control daemon."""
    folder = tmp_path / "pipe"
    folder.mkdir()
    command = [sys.executable, "-m", "orion.node_agent.mps.simulated_control", "-f"]
    with subprocess.Popen(command, env={"CUDA_MPS_PIPE_DIRECTORY": str(folder), "PATH": "/usr/bin"}) as daemon:
        eventually((folder / "control").exists)
        yield folder
        daemon.kill()


def together(rows: list[tuple[int, int, int, str]], one: int, other: int) -> bool:
    """Return whether a kernel of one process ever ran beside one of the other."""
    return any(
        first[1] > second[0] and second[1] > first[0]
        for first in rows
        for second in rows
        if (first[2], second[2]) == (one, other)
    )


def test_mps_clients_run_together_and_are_time_sliced_with_other_processes(
    start_worker: StartWorker,
    pipe: Path,
    tmp_path: Path,
) -> None:
    trace = str(tmp_path / "trace")
    clients = [start_worker(CUDA_MPS_PIPE_DIRECTORY=str(pipe), ORION_SIM_TRACE=trace) for _ in range(2)]
    alone = start_worker(CUDA_MPS_PIPE_DIRECTORY=str(tmp_path / "nothing"), ORION_SIM_TRACE=trace)
    for worker in (*clients, alone):
        worker.do("launch 20 5000 66")
    for worker in (*clients, alone):
        worker.do("sync")
        worker.begin("exit")
        worker.process.wait(timeout=60)
    rows = pieces(Path(trace))
    ran = {worker.pid: sum(end - start for start, end, pid, _ in rows if pid == worker.pid) for worker in clients}
    assert set(ran.values()) == {20 * 5_000_000}
    assert together(rows, clients[0].pid, clients[1].pid)
    assert not any(together(rows, worker.pid, alone.pid) for worker in clients)
    turns = sum(left[2] == alone.pid != right[2] for left, right in pairwise(rows))
    assert turns > 5  # no process waits for all of the other's work


def test_when_the_daemon_ends_its_clients_lose_their_contexts(start_worker: StartWorker, pipe: Path) -> None:
    client, alone = start_worker(CUDA_MPS_PIPE_DIRECTORY=str(pipe)), start_worker()
    for worker in (client, alone):
        worker.do("launch 1 100 66")
    command = [sys.executable, "-m", "orion.node_agent.mps.simulated_control"]
    subprocess.run(command, input="quit", text=True, check=True, env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}, timeout=60)
    deadline = time.monotonic() + 60
    while True:
        client.begin("launch 1 100 66")
        if not client.answer():  # the client has ended because of the error
            break
        assert time.monotonic() < deadline
    assert client.process.wait(60) != 0
    assert client.process.returncode != -signal.SIGSEGV
    alone.do("launch 1 100 66")
    alone.do("sync")
