"""`orion bench`: what it says without a measurement; measurements are tests/bench's."""

from pathlib import Path

import pytest

from orion.cli.main import main


def test_without_a_command_it_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench"]) == 2
    shown = capsys.readouterr()
    assert "colocation" in shown.out
    assert shown.err == ""


def test_a_scenario_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "colocation", str(tmp_path / "x.yaml"), "--simulated"]) == 2
    assert "x.yaml: No such file or directory" in capsys.readouterr().err


def test_a_folder_without_runs_gives_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "report", str(tmp_path)]) == 1
    assert "holds no runs" in capsys.readouterr().err
