"""`orion stop` ends the agent that `orion run` started; the programs continue."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from orion.cli import agents
from orion.cli.main import main
from orion.node_agent.api.client import NoAgent
from tests.cli.orion_command import StartClient, end, run
from tests.processes import is_running
from tests.waiting import eventually

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def agent(root: Path) -> int:
    """The process ID of an agent that `orion run` started."""
    assert run(root, "--priority", "be").returncode == 0
    return agents.ask(root).agent_process_id


def test_the_agent_ends_and_the_command_names_it(root: Path, agent: int, capsys: Capture) -> None:
    assert main(["stop", "--root", str(root)]) == 0
    assert capsys.readouterr().out == f"stopped the agent at {root} (process {agent})\n"
    assert not is_running(agent)
    with pytest.raises(NoAgent):
        agents.ask(root)


def test_programs_that_continue_are_named(root: Path, agent: int, client: StartClient, capsys: Capture) -> None:
    process = client("--priority", "be")
    eventually(lambda: any(slot.clients for gpu in agents.ask(root).gpus for slot in gpu.slots))
    assert main(["stop", "--root", str(root)]) == 0
    assert f"continue under their current grants: {process.pid} (python" in capsys.readouterr().out
    assert process.poll() is None
    end(process)
    assert process.returncode == 0


def test_without_an_agent_nothing_is_stopped(root: Path, capsys: Capture) -> None:
    assert main(["stop", "--root", str(root)]) == 1
    assert capsys.readouterr().err == f"orion: no agent runs at {root}, so nothing was stopped\n"


def test_an_agent_that_does_not_answer_is_ended(
    root: Path, silent_agent: subprocess.Popen[str], capsys: Capture
) -> None:
    assert main(["stop", "--root", str(root)]) == 0
    assert capsys.readouterr().out == f"stopped the agent at {root} (process {silent_agent.pid})\n"


def test_an_agent_that_somebody_has_stopped_is_ended(root: Path, agent: int, capsys: Capture) -> None:
    os.kill(agent, signal.SIGSTOP)
    assert main(["stop", "--root", str(root)]) == 0
    assert capsys.readouterr().out == f"stopped the agent at {root} (process {agent})\n"
    assert not is_running(agent)
