"""Checks the help, the lists and the errors of `orion bench`; tests/bench checks its measurements."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from orion.cli.main import main
from tests.bench.temporary_folders import folders
from tests.cli.orion_command import ORION
from tests.processes import children, is_running
from tests.waiting import DEADLINE, eventually

SCENARIOS = Path(__file__).resolve().parents[2] / "bench" / "scenarios"


def test_without_a_command_it_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    shown = capsys.readouterr()
    assert "colocation" in shown.out
    assert shown.err == ""


def test_a_missing_scenario_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "colocation", str(tmp_path / "x.yaml"), "--simulated"]) == 2
    assert "x.yaml: No such file or directory" in capsys.readouterr().err


def test_a_folder_without_runs_gives_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "report", str(tmp_path)]) == 1
    assert "holds no runs" in capsys.readouterr().err


def test_workloads_are_listed_with_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "workloads"]) == 0
    shown = capsys.readouterr().out
    assert "gpt-decode: the decoder generates" in shown
    assert "    batch (integer; 1 by default): sequences generated together" in shown
    assert main(["bench", "workloads", "--json"]) == 0
    workloads = json.loads(capsys.readouterr().out)["workloads"]
    assert workloads["gemm"]["options"][0] == {
        "name": "size", "default": 8192, "allowed": "integer",
        "meaning": "rows and columns; usual: 2048, 4096, 8192",
    }  # fmt: skip


def test_bench_threads_reports_that_torch_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["bench", "threads"]) == 1
    assert "torch is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["quotas", "memory"])
def test_a_setting_that_the_scenario_lacks_is_named_with_those_that_it_has(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = str(SCENARIOS / f"{part}-smoke.yaml")
    assert main(["bench", part, scenario, "--simulated", "--only", "none", "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("orion: --only none: there is no such setting; there are ")


@pytest.mark.parametrize("part", ["quotas", "memory"])
def test_nothing_outlives_a_measurement_that_sigterm_ends(part: str, tmp_path: Path) -> None:
    command = [*ORION, "bench", part, str(SCENARIOS / f"{part}-smoke.yaml"), "--simulated", "--output", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:

        def agent_and_worker() -> set[int]:
            assert process.poll() is None
            found = children(process.pid)
            return found if len(found) >= 2 else set()

        processes = eventually(agent_and_worker)
        used = set().union(*map(folders, processes))
        assert len(used) >= 2  # the agent's root and the simulated machine
        process.terminate()
        process.communicate(timeout=DEADLINE)
        assert process.returncode == 128 + signal.SIGINT
    eventually(lambda: not any(map(is_running, processes)))
    assert not any(folder.exists() for folder in used)
