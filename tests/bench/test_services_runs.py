"""`orion bench services` with processes that only wait: runs, files, continuing, failures and refusals."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from orion.bench import raw_data
from orion.bench.services import controller, processes, scenario
from orion.cli.main import main
from orion.errors import Unreadable

SHIPPED = Path(scenario.__file__).resolve().parent.parent / "scenarios" / "services.yaml"
SMALL: dict[str, Any] = {
    "name": "small",
    "services": {
        "resnet": {"model": "resnet50", "batch": 2, "max_delay_ms": 2, "objective_ms": 500},
        "bert": {"model": "bert", "batch": 2, "max_delay_ms": 2, "objective_ms": 500},
    },
    "profile": {"batches": [1, 2], "shares": [50], "seconds": 0.01, "samples": 2, "beside_seconds": 0.05},
    "pairs": {"pairs": [["resnet", "bert"]], "loads": [0.2], "ways": ["part-50-50", "edf"], "seconds": 0.2},
    "climb": {"pairs": [["resnet", "bert"]], "loads": [40], "seconds": 0.05},
    "engine": {
        "max_sequences": 3, "tokens_per_step": 16, "chunk_multiple": 8, "kv_tokens": 100,
        "prompt": [16, 20], "output": [1, 4], "loads": [0.5], "seconds": 0.2, "backlog": 5,
    },
}  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(SMALL))
    return path


def test_the_shipped_scenario_measures_what_the_targets_ask() -> None:
    wanted = scenario.read(SHIPPED)
    assert len(wanted.services) == 4
    assert {"slices", "edf"} < set(wanted.pairs.ways)
    assert len(wanted.pairs.pairs) * len(wanted.pairs.loads) == 12
    assert len(wanted.engine.loads) == 3


def test_all_parts_are_measured_and_a_second_command_makes_nothing_again(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    command = ["bench", "services", str(small), "--output", str(output), "--device", "fake"]
    assert main(command) == 0
    assert "failed" in capsys.readouterr().out
    made = sorted(path.relative_to(output / "runs").as_posix() for path in output.rglob("*.json.gz"))
    assert [name.split("/")[0] for name in made].count("profile") == 4
    assert "pairs/resnet-bert-0.2-edf.json.gz" in made
    assert "engine/load-0.5.json.gz" in made
    runs = [
        raw_data.read(output / "runs" / "pairs" / f"resnet-bert-0.2-{way}.json.gz") for way in ("part-50-50", "edf")
    ]
    first, second = ([each["gaps_us"] for each in run["services"]] for run in runs)
    assert first == second  # the same arrivals in all ways
    assert main([*command, "--only", "pairs"]) == 0
    assert " 0 runs made" in capsys.readouterr().out


def test_a_worker_that_dies_fails_its_run_only(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = processes.Processes.command
    killed: list[int] = []

    def command(self: processes.Processes, posts: Any, commands: Any, *rest: Any, **more: Any) -> Any:
        if commands[0]["do"] == "serve" and not killed:
            killed.append(self._workers[posts[0]].process_id)
            os.kill(killed[0], signal.SIGKILL)
        return original(self, posts, commands, *rest, **more)

    monkeypatch.setattr(processes.Processes, "command", command)
    assert controller.run(small, tmp_path / "out", ["pairs"], "fake", 60.0) == 1
    shown = capsys.readouterr()
    assert "pairs/resnet-bert-0.2-part-50-50: FAILED" in shown.out
    assert "1 runs made, 1 failed" in shown.out


def test_no_run_starts_that_would_end_too_late(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert controller.run(small, tmp_path / "out", ["engine"], "fake", 1.0) == 0
    assert "0 runs made" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--only", "pears"], "there is no such part"), (["--device", "tpu"], "there is no such device")],
)
def test_wrong_options_are_refused(
    small: Path, tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "services", str(small), "--output", str(tmp_path / "out"), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_of_another_scenario_is_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "scenario.yaml").write_text("name: other")
    assert main(["bench", "services", str(small), "--output", str(tmp_path / "out"), "--device", "fake"]) == 1
    assert "another scenario" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pairs": {**SMALL["pairs"], "ways": ["halves"]}}, "there is no way 'halves'"),
        ({"pairs": {**SMALL["pairs"], "pairs": [["resnet", "gone"]]}}, "there is no service gone"),
        ({"engine": {**SMALL["engine"], "kv_tokens": 10}}, "kv_tokens has to hold the longest request"),
        ({"more": 1}, "there is no such field"),
    ],
)
def test_a_wrong_scenario_is_refused_in_one_sentence(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(json.dumps({**SMALL, **change}))
    with pytest.raises(Unreadable, match=said):
        scenario.read(path)
