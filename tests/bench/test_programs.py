"""Public programs as workloads: packages that are missing, loops that libraries control, and `orion bench programs`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orion.bench import programs
from orion.bench.colocation import measure
from orion.bench.colocation.plan import Plan
from orion.bench.managed import machine
from orion.bench.workload import Place
from orion.bench.workloads import KINDS, Kind, load, why_skipped
from orion.bench.workloads.programs.driven import DrivenLoop, refuse_threads
from orion.bench.workloads.programs.kinds import PROGRAMS
from orion.cli.main import main
from orion.errors import Invalid, Unavailable
from tests.bench.small_scenario import BE, scenario
from tests.waiting import eventually


def kind(*packages: str) -> Kind:
    return Kind("one", KINDS["gemm"].options, "stress:Gemm", packages=packages)


def test_a_program_without_its_packages_is_skipped_with_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "one", kind("no_such_package", "yaml"))
    monkeypatch.setitem(KINDS, "both", kind("no_such_package", "nor_this"))
    monkeypatch.setitem(KINDS, "here", kind("yaml", "pytest"))
    assert why_skipped("one") == "one is skipped: it needs no_such_package, which is not installed"
    assert why_skipped("both") == "both is skipped: it needs no_such_package and nor_this, which are not installed"
    assert why_skipped("here") is None
    assert why_skipped("gemm") is None


def test_versions_are_those_of_the_installed_distributions() -> None:
    assert kind("pytest", "no_such_package").versions == {"pytest": pytest.__version__}


def test_a_scenario_leaves_out_the_programs_whose_packages_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "absent", kind("no_such_package"))
    path = scenario(tmp_path, ["orion"], be=[BE, {"workload": "absent"}])
    assert measure.run(measure.Options(path, tmp_path / "out", dry_run=True, as_json=True)) == 0
    shown = capsys.readouterr()
    assert shown.err == "orion bench: absent is skipped: it needs no_such_package, which is not installed\n"
    files = [Path(run).name for run in json.loads(shown.out)["runs"]]
    assert sorted(files) == ["alone.json.gz", "hp-closed-loop.json.gz", "orion.json.gz", "simulated-training.json.gz"]
    without = scenario(tmp_path, ["orion"], hp={"workload": "absent"})
    assert measure.run(measure.Options(without, tmp_path / "out", dry_run=True)) == 2
    assert "there is nothing to measure: absent is skipped: it needs" in capsys.readouterr().err


def test_a_driven_loop_makes_one_step_at_a_time() -> None:
    made: list[int] = []

    def run(items: Iterator[None]) -> None:
        for number, _ in enumerate(items):
            made.append(number)

    loop = DrivenLoop(run)
    assert made == []
    for count in range(1, 4):
        loop.step()
        assert len(made) == count


def test_a_driven_loop_that_reads_ahead_still_makes_one_step_at_a_time() -> None:
    made: list[int] = []

    def run(items: Iterator[None]) -> None:
        next(items)
        for number, _ in enumerate(items):
            made.append(number)

    loop = DrivenLoop(run)
    for count in range(4):
        loop.step()
        assert len(made) == count


def test_a_driven_loop_reports_that_it_failed_or_ended() -> None:
    def fail(items: Iterator[None]) -> None:
        next(items)
        raise ValueError("no gradient")

    loop = DrivenLoop(fail)
    with pytest.raises(Unavailable, match="the loop failed: no gradient"):
        loop.step()
    with pytest.raises(Unavailable, match="the loop failed: it ended"):
        DrivenLoop(lambda items: None)


def test_a_program_refuses_to_be_one_of_several_threads() -> None:
    refuse_threads(Place())
    with pytest.raises(Invalid, match="run it in a process of its own"):
        refuse_threads(Place(one_of_several=True))


UPDATED = """
import json
from orion.bench.workload import Place
from orion.bench.workloads import graph_updates, make
counted = []
apply = graph_updates.GraphUpdates.apply
graph_updates.GraphUpdates.apply = lambda self: (counted.append(self.kernels), apply(self))
workload = make("simulated-inference", {"kernels": 7, "kernel_us": 20.0, "graph": True, "updated": True})
counted.clear()
for _ in range(3):
    workload.step()
print(json.dumps(counted))
"""


def test_an_updated_graph_sets_every_kernel_before_each_launch() -> None:
    with machine(simulated=True) as environment:
        done = subprocess.run(
            [sys.executable, "-c", UPDATED], env=environment, capture_output=True, text=True, timeout=100
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [7, 7, 7]


def test_stand_ins_launch_graphs_where_their_programs_do() -> None:
    def fields(name: str, **options: Any) -> tuple[bool, bool]:
        step = load(name, options, simulated=True)[1]
        return step.get("graph", False), step.get("updated", False)

    assert fields("jax-training") == (True, True)
    assert fields("jax-training", donate=True) == (True, False)
    assert fields("jax-training", command_buffers=False) == (False, False)
    assert fields("compiled-training") == (False, False)
    assert fields("compiled-training", mode="reduce-overhead") == (True, False)
    assert fields("decode-graph", updated=True) == (True, True)


def test_every_program_runs_in_both_roles() -> None:
    chosen = programs.cases([])
    assert {name for name, _ in chosen} == set(PROGRAMS)
    plan = Plan(programs.scenario(chosen, 2.0).resolved(Path()))
    runs = [run for unit in plan.units for run in unit.runs if run.kind == "beside"]
    roles = {(run.experiment.hp.workload, run.entry.workload) for run in runs if run.entry}
    assert roles == {(name, "resnet50-inference") for name in PROGRAMS} | {
        ("resnet50-inference", name) for name in PROGRAMS
    }
    assert len(runs) == 2 * len(chosen)


def test_the_list_has_packages_versions_and_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "programs", "--list", "--json"]) == 0
    found = {each["program"]: each for each in json.loads(capsys.readouterr().out)["programs"]}
    assert list(found) == list(PROGRAMS)
    for name, each in found.items():
        assert (each["skipped"] is None) == all(each["packages"].values()), name
    assert main(["bench", "programs", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in PROGRAMS)


def test_an_unknown_program_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "programs", "jax"]) == 2
    assert "there is no program 'jax'; there are jax-training" in capsys.readouterr().err


def test_the_command_runs_a_program_in_both_roles_and_prints_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "programs", "cupy-fft", "--simulated", "--seconds", "1", "--output", str(tmp_path / "out")]
    status = main(command)
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "[8/8]" in shown.err
    head, as_hp, as_be, report = shown.out.splitlines()
    assert head.startswith("program   role  beside ")
    assert as_hp.split()[:4] == ["cupy-fft", "hp", "resnet50-inference-batch-64-mode-graph", "orion"]
    assert as_be.split()[:4] == ["cupy-fft", "be", "resnet50-inference-batch-64-mode-graph", "orion"]
    assert report == f"Report: {tmp_path / 'out' / 'report.md'}"
    assert "## Programs\n\n| program | role | beside |" in (tmp_path / "out" / "report.md").read_text()
    assert main([*command, "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["runs"], outcome["reused"]) == (0, 8)
    assert [row["role"] for row in outcome["summary"]["programs"]] == ["hp", "be"]


def test_ctrl_c_ends_the_command_and_says_how_to_continue(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "orion.cli", "bench", "programs", "cupy-fft", "--simulated"]
    out = tmp_path / "out"
    running = subprocess.Popen([*command, "--output", str(out)], stderr=subprocess.PIPE, text=True, env=os.environ)
    try:
        eventually(lambda: list(out.rglob("*.json.gz")), seconds=60)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=30)[1]
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "the same command continues from there" in said
    assert "Traceback" not in said
