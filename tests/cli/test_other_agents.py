"""Two agents on one GPU: `orion top` and `orion doctor` warn that the agents do not coordinate."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.cli import agents, other_agents
from orion.cli.main import main
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import NoAgent
from tests.cli.orion_command import ORION
from tests.waiting import eventually

Capture = pytest.CaptureFixture[str]
Agent = Callable[[str], Path]


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """A function that starts an agent with its own root on a simulated machine, and returns the root."""
    started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def answers(root: Path) -> bool:
        try:
            return bool(agents.ask(root).gpus)
        except NoAgent:
            return False

    def start(machine: str) -> Path:
        root = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))
        environment = {**os.environ, "ORION_SIM_STATE": str(tmp_path / machine)}
        command = [*ORION, "agent", "--root", str(root), "--simulated", "--metrics-address", ""]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        started.append((process, root))
        eventually(lambda: answers(root))
        return root

    yield start
    for process, root in started:
        process.terminate()
        process.wait(30)
        shutil.rmtree(root)


def test_both_commands_name_the_other_agent_of_a_gpu(agent: Agent, capsys: Capture) -> None:
    one, other = agent("machine"), agent("machine")
    assert main(["top", "--once", "--root", str(one)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"root {other}) also manages GPU 0" in shown
    assert f"root {one})" not in shown
    main(["doctor", "--simulated", "--json", "--root", str(one)])
    checks = json.loads(capsys.readouterr().out)["checks"]
    [found] = [each for each in checks if each["name"] == "other agents" and str(other) in each["reason"]]
    assert found["status"] == "note"
    assert "one --root" in found["fix"]


def test_agents_of_different_simulated_machines_are_not_reported(agent: Agent, capsys: Capture) -> None:
    one, other = agent("machine"), agent("another")
    assert main(["top", "--once", "--root", str(one)]) == 0
    assert str(other) not in capsys.readouterr().out


def test_a_root_without_an_agent_shows_the_other_agents(agent: Agent, tmp_path: Path, capsys: Capture) -> None:
    other = agent("machine")
    main(["doctor", "--simulated", "--root", str(tmp_path)])
    assert f"root {other}) also manages GPUs of this machine" in " ".join(capsys.readouterr().out.split())


def _process(proc: Path, words: list[str], **variables: str) -> None:
    folder = proc / "123"
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in variables.items()))
    os.chown(folder, 12_345, 12_345)


@pytest.mark.parametrize(
    ("variables", "root"),
    [({"XDG_RUNTIME_DIR": "/run/user/7"}, "/run/user/7/orion"), ({}, "/tmp/orion-12345")],
    ids=["with", "without"],
)
def test_an_agent_without_the_option_has_the_root_that_its_environment_says(
    variables: dict[str, str], root: str, tmp_path: Path
) -> None:
    _process(tmp_path, ["/usr/bin/python3", "/usr/bin/orion", "agent"], **variables)
    assert [str(each.root) for each in other_agents.find(tmp_path)] == [root]


def test_a_program_that_waits_for_an_agent_is_none(tmp_path: Path) -> None:
    _process(tmp_path, ["sudo", "-u", "orion", "agent"])
    assert list(other_agents.find(tmp_path)) == []


def test_the_asked_agent_is_no_other_one_whatever_its_root_seems_to_be(tmp_path: Path) -> None:
    _process(tmp_path, ["/usr/bin/python3", "/usr/bin/orion", "agent"])
    asked = agent_pb2.Snapshot(agent_process_id=123, gpus=[agent_pb2.Gpu(uuid="GPU-0")])
    assert other_agents.warnings(tmp_path / "root", asked, tmp_path) == []
