"""Runs programs, each on a separate simulated machine."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sim.worker_process import StartWorker, workers

Run = Callable[..., subprocess.CompletedProcess[str]]


def at(build: Path) -> dict[str, str]:
    """Environment in which a program finds the simulated driver, and scenarios can import each other."""
    return {"LD_LIBRARY_PATH": str(build / "sim"), "PYTHONPATH": str(Path(__file__).parents[2])}


@pytest.fixture
def machine(c_build: Path) -> Iterator[dict[str, str]]:
    """The environment of a simulated machine that no other test uses."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    state = tempfile.mkdtemp(prefix="orion-sim-test-", dir=base)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORION_SIM_")}
    yield {**kept, **at(c_build), "ORION_SIM_STATE": state, "ORION_SIM_SEED": "test"}
    shutil.rmtree(state, ignore_errors=True)


@pytest.fixture
def run_scenario(machine: dict[str, str]) -> Run:
    """Runs one function of a scenario file in a separate process on the machine."""

    def run(file: str, function: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(Path(__file__).parent / file), function, *arguments]
        done = subprocess.run(command, env={**machine, **settings}, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def start_worker(machine: dict[str, str]) -> Iterator[StartWorker]:
    """Starts processes of worker.py on the machine."""
    with workers("worker.py", machine) as start:
        yield start
