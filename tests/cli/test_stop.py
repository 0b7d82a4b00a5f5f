"""`orion stop` ends the agent that `orion run` started; the programs continue."""

import subprocess
import sys
from pathlib import Path

import pytest

from orion.cli import agents
from orion.cli.main import main
from orion.node_agent.api.client import NoAgent
from tests.processes import is_running
from tests.waiting import eventually

RUN = [sys.executable, "-m", "orion.cli", "run", "--simulated", "--priority", "be"]
CLIENT = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuCtxSynchronize() == 0
print("ready", flush=True)
sys.stdin.read()
"""
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def agent(root: Path) -> int:
    """The process ID of an agent that `orion run` started."""
    subprocess.run([*RUN, "--root", str(root), "--", "true"], check=True, capture_output=True, timeout=60)
    return agents.ask(root).agent_process_id


def test_the_agent_ends_and_the_command_names_it(root: Path, agent: int, capsys: Capture) -> None:
    assert main(["stop", "--root", str(root)]) == 0
    assert capsys.readouterr().out == f"stopped the agent at {root} (process {agent})\n"
    assert not is_running(agent)
    with pytest.raises(NoAgent):
        agents.ask(root)


def test_programs_that_continue_are_named(root: Path, agent: int, capsys: Capture) -> None:
    command = [*RUN, "--root", str(root), "--", sys.executable, "-c", CLIENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        eventually(lambda: any(slot.clients for gpu in agents.ask(root).gpus for slot in gpu.slots))
        assert main(["stop", "--root", str(root)]) == 0
        assert f"continue under their current grants: {process.pid} (python" in capsys.readouterr().out
        assert process.poll() is None
        process.communicate("")
    assert process.returncode == 0


def test_without_an_agent_nothing_is_stopped(root: Path, capsys: Capture) -> None:
    assert main(["stop", "--root", str(root)]) == 1
    assert capsys.readouterr().err == f"orion: no agent runs at {root}, so nothing was stopped\n"
