"""Checks the help, the lists and the errors of `orion bench`; tests/bench checks its measurements."""

import json
from pathlib import Path

import pytest

from orion.cli.main import main


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
