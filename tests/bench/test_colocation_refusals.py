"""Errors that `orion bench colocation` reports in one sentence before it starts anything; and `--dry-run`."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from orion.bench.colocation import measure
from orion.bench.colocation import scenario as scenarios
from tests.bench.small_scenario import PAIR, measured, scenario


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"hp": {"workload": "resnet51"}}, {}, "there is no workload 'resnet51'; there are resnet50-inference"),
        ({"be": [{"workload": "gemm", "options": {"szie": 1}}]}, {}, "gemm has no option 'szie'"),
        ({}, {"only": "nothing"}, "--only nothing matches no run"),
        ({}, {"gpus": "GPU-1"}, "--gpus GPU-1: simulated GPUs are numbers"),
    ],
)
def test_invalid_input_is_rejected_before_anything_starts(
    changes: dict[str, Any], options: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(scenario(tmp_path, ["timeslice"], **changes), tmp_path / "out", **options) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_unknown_policy_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scenario(tmp_path, ["best"], {"best": {"kind": "orion", "policy": "best"}})
    assert measured(path, tmp_path / "out") == 2
    assert "systems.best.policy: there is no policy 'best'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"request": 0.4}, "systems.mine.request: it must be greater than or equal to 0.5, not 0.4"),
        ({"window_us": 9}, "systems.mine.window_us: it must be greater than or equal to 50, not 9"),
        ({"linger_floor_us": 9000}, "systems.mine: linger_floor_us 9000 must not exceed linger_ceiling_us 2000"),
    ],
)
def test_fields_that_the_agent_would_reject_are_rejected_before_anything_starts(
    fields: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(tmp_path, ["mine"], {"mine": {"kind": "orion", "policy": "orion", **fields}})
    assert measured(path, tmp_path / "out") == 2
    assert capsys.readouterr().err == f"orion bench: {path}: {said}\n"


def test_a_machine_without_a_gpu_is_an_error_of_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    options = measure.Options(scenario(tmp_path, ["timeslice"]), tmp_path / "out")
    assert measure.run(options) == 2
    assert "--simulated runs without one" in capsys.readouterr().err


def test_a_folder_with_another_scenario_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scenario(tmp_path, ["timeslice"])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "scenario.yaml").write_text(scenarios.write(scenarios.read(path).resolved(tmp_path)))
    assert measured(path, tmp_path / "out", rounds=2) == 2
    assert "differs from the scenario to measure" in capsys.readouterr().err


def test_a_dry_run_shows_the_plan_and_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(scenario(tmp_path, ["timeslice"]), tmp_path / "out", dry_run=True, as_json=True) == 0
    plan = json.loads(capsys.readouterr().out)
    assert f"{PAIR}/simulated-training/timeslice.json.gz" in plan["runs"]
    assert plan["seconds_by_gpus"]["1"] >= plan["seconds_by_gpus"]["4"] > 0
    assert not (tmp_path / "out").exists()
