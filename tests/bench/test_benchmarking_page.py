"""The scenarios on all pages are valid, and docs/benchmarking.md names all systems, scenarios and options."""

import re
from pathlib import Path

import pytest

from orion.bench.colocation import scenario as scenarios
from orion.bench.colocation.plan import Plan
from orion.bench.colocation.posts import posts_of
from orion.bench.colocation.systems import STANDARD
from orion.bench.workloads.programs.kinds import PROGRAMS
from orion.cli.main import main
from tests.docs.page_examples import yaml_blocks

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PAGE = (REPOSITORY / "docs" / "benchmarking.md").read_text()


@pytest.mark.parametrize("text", yaml_blocks("experiments:", "systems:"), ids=lambda text: text.split()[1])
def test_scenarios_can_be_planned(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    plan = Plan(scenarios.read(tmp_path / "mine.yaml").resolved(tmp_path))
    runs = [run for unit in plan.units for run in unit.runs]
    assert runs
    for run in runs:
        assert posts_of(run, simulated=False)


def test_the_page_names_every_standard_system_and_scenario() -> None:
    for name in STANDARD:
        assert f"`{name.removesuffix('-in-mps').removesuffix('-in-threads')}`" in PAGE
    for path in (REPOSITORY / "bench" / "scenarios").glob("*.yaml"):
        assert f"`{path.stem}`" in PAGE


def test_the_page_names_every_program() -> None:
    for name in PROGRAMS:
        assert f"`{name}`" in PAGE


def test_the_options_on_the_page_exist(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = ""
    parts = ("colocation", "report", "pack", "workloads", "threads", "services", "programs", "quotas", "memory")
    for command in (*(["bench", part] for part in parts), ["loadgen"], ["mps-daemon"]):
        main([*command, "--help"])
        shown += capsys.readouterr().out
    for option in set(re.findall(r"--[a-z][a-z-]+", PAGE)):
        assert option in shown, option
