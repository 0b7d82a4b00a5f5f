"""Complete measurements on the simulated GPU, with real processes, hook and agents: results, failures, resumption."""

import errno
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from orion.bench.colocation import gpus, measurement, mps, results, runner, shared_gpu
from orion.bench.colocation import scenario as scenarios
from orion.bench.colocation.plan import PlannedRun
from orion.bench.workers import crew
from tests.bench.small_scenario import BE, HP, PAIR, measured, scenario
from tests.processes import children, is_running
from tests.waiting import eventually

SMOKE = Path(scenarios.__file__).resolve().parent.parent / "scenarios" / "smoke.yaml"


def read(path: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return run


def test_the_smoke_scenario_completes_and_makes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert measured(SMOKE, tmp_path / "out", as_json=True) == 0
    assert time.monotonic() - began < 120  # seconds; users wait for the end of this scenario
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["failed"] == {}
    assert outcome["runs"] == 8
    files = [path for path in (tmp_path / "out" / "runs").rglob("*.json.gz") if read(path)["hp"]]
    assert {read(path)["system"] for path in files} == {
        "alone", "hp-closed-loop", "timeslice", "gate", "orion", "mps", "orion-1.5",
    }  # fmt: skip
    served = [read(path) for path in files if path.name != "hp-closed-loop.json.gz"]
    assert all(run["arrivals"] == served[0]["arrivals"] for run in served)
    assert all(sum(due >= run["window"][0] for due in run["arrivals"]) >= 150 for run in served)
    orion = next(run for run in served if run["system"] == "orion")
    assert sum(len(slot["clients"]) for slot in orion["gpu"]["slots"]) >= 2
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| orion-1.5 | " in text
    plots = list((tmp_path / "out").rglob("*.png"))
    assert len(plots) >= 2
    assert all(f"]({plot.relative_to(tmp_path / 'out')})" in text for plot in plots)
    assert "hostname" not in json.loads((tmp_path / "out" / "machine.json").read_text())


def test_a_failed_run_is_listed_and_retried_and_the_others_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marker = tmp_path / "fixed"
    prefix = ["sh", "-c", f'[ -e {marker} ] && exec "$@"; exec timeout --signal=KILL 2 "$@"', "sh"]
    defined = {"dying": {"kind": "foreign", "be": {"prefix": prefix}}}
    path = scenario(tmp_path, ["dying", "timeslice"], defined, requests=250)
    assert measured(path, tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert "1 runs failed" in said
    assert "beside simulated-training, system dying, round 1: worker be simulated-training" in said
    failed = read(tmp_path / "out" / PAIR / "simulated-training" / "dying.json.gz")
    assert failed["system"] == "dying"
    assert failed["ends"] == []
    assert read(tmp_path / "out" / PAIR / "simulated-training" / "timeslice.json.gz")["error"] is None
    marker.touch()
    assert measured(path, tmp_path / "out", as_json=True) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["runs"], again["reused"], again["failed"]) == (1, 4, {})


def test_without_mps_only_the_runs_that_need_it_fail_each_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shared_gpu.SharedGPU._sharing

    def sharing(gpu: shared_gpu.SharedGPU) -> dict[str, str]:
        if gpu._mode == "mps":  # a simulated GPU needs no MPS daemon; this test requires one
            with mps.MpsDaemon({}, "GPU-1"):
                pass
        return real(gpu)

    monkeypatch.setattr(shared_gpu.SharedGPU, "_sharing", sharing)
    monkeypatch.setattr(mps, "CONTROL", "no-mps-control-here")
    assert measured(scenario(tmp_path, ["mps", "timeslice", "gate-in-mps"]), tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert "2 runs failed" in said
    assert "system mps, round 1: MPS needs no-mps-control-here" in said
    assert read(tmp_path / "out" / PAIR / "simulated-training" / "timeslice.json.gz")["error"] is None
    assert "MPS needs no-mps-control-here" in (tmp_path / "out" / "report.md").read_text()


def test_no_run_starts_that_would_end_too_late_and_the_same_command_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scenario(tmp_path, ["timeslice"])
    monkeypatch.setattr(measurement.Measurement, "_worth_starting", lambda self, unit: True)
    monkeypatch.setattr(
        measurement.Measurement, "_in_time", lambda self, run, starting: run.closed or run.kind == "be-alone"
    )
    assert measured(path, tmp_path / "out", stop_after=2.0, as_json=True) == 0
    shown = capsys.readouterr()
    outcome = json.loads(shown.out)
    assert (outcome["runs"], outcome["left"]) == (2, 2)
    assert "2 runs were not started, because they would have ended too late" in shown.err
    assert "the same command continues with them" in shown.err
    monkeypatch.undo()
    assert measured(path, tmp_path / "out", stop_after=1.0, no_report=True, as_json=True) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["runs"], outcome["left"], outcome["summary"]) == (0, 2, None)
    assert measured(path, tmp_path / "out", as_json=True) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["runs"], outcome["reused"], outcome["left"]) == (2, 2, 0)


def test_without_time_for_hps_closed_loop_the_runs_that_need_it_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement.Measurement, "_worth_starting", lambda self, unit: True)
    monkeypatch.setattr(measurement.Measurement, "_in_time", lambda self, run, starting: not run.closed)
    path = scenario(tmp_path, ["timeslice"])
    assert measured(path, tmp_path / "out", stop_after=2.0, no_report=True, as_json=True) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["runs"], outcome["left"], outcome["failed"]) == (0, 4, {})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(scenario(tmp_path, ["timeslice"]), Path("/proc/no/out")) == 2
    said = capsys.readouterr().err
    assert said == "orion bench: --output /proc/no/out cannot be written: No such file or directory\n"


def test_a_disk_that_fills_up_ends_the_measurement_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = results.Results.write

    def full(self: results.Results, path: str, run: dict[str, Any]) -> None:
        if run["system"] == "alone":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(self, path, run)

    monkeypatch.setattr(results.Results, "write", full)
    assert measured(scenario(tmp_path, ["timeslice"]), tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert "orion bench: No space left on device: " in said
    assert "the same command continues from there" in said
    assert "Traceback" not in said


def test_a_process_that_hangs_fails_only_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PATIENCE", 1.0)
    marker, begins = tmp_path / "begun", measurement.Measurement.begins

    def begun(self: measurement.Measurement, device: gpus.Device, run: PlannedRun) -> None:
        begins(self, device, run)
        if run.system == "hanging":
            marker.touch()

    monkeypatch.setattr(measurement.Measurement, "begins", begun)
    stopper = f"for i in $(seq 2000); do [ -e {marker} ] && break; sleep 0.05; done; kill -STOP $$"
    defined = {"hanging": {"kind": "foreign", "be": {"prefix": ["sh", "-c", f'({stopper}) & exec "$@"', "sh"]}}}
    assert measured(scenario(tmp_path, ["hanging", "timeslice"], defined, requests=150), tmp_path / "out") == 1
    said = capsys.readouterr().err
    assert "system hanging, round 1: worker be simulated-training gave no answer" in said
    assert "1 runs failed" in said


def test_be_slots_with_requests_a_training_hp_and_threads_can_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(
        tmp_path, ["orion", "gate-in-threads", "plain-streams"], arrivals={"kind": "closed"},
        hp={"workload": "simulated-training", "options": {"stall_ms": 2}},
        be=[{**BE, "count": 2, "requests": [0.4, 0.2]}],
    )  # fmt: skip
    assert measured(path, tmp_path / "out") == 0, capsys.readouterr().err
    folder = tmp_path / "out" / "runs" / "simulated-training-stall-ms-2-closed" / "0"
    for system in ("orion", "gate-in-threads", "plain-streams"):
        (run,) = (read(found) for found in folder.rglob(f"{system}.json.gz"))
        assert [be["request"] for be in run["be"]] == [0.4, 0.2]
        assert all(be["ends"] for be in run["be"])
        assert run["arrivals"] == []
        assert len(run["ends"]) == len(run["starts"]) >= 20


def test_two_gpus_share_the_hp_workloads(tmp_path: Path) -> None:
    path = scenario(tmp_path, ["timeslice"], requests=20)
    fields = yaml.safe_load(path.read_text())
    fields["experiments"].append({**fields["experiments"][0], "arrivals": {"kind": "uniform", "load": 0.2}})
    path.write_text(yaml.safe_dump(fields))
    assert measured(path, tmp_path / "out", gpus="0,1") == 0
    devices = {
        found.parent.parent.name: read(found)["device"]["index"]
        for found in (tmp_path / "out" / "runs").rglob("alone.json.gz")
    }
    assert sorted(devices.values()) == [0, 1]


def test_no_gpu_measures_while_a_process_of_another_gpu_starts_or_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[float] = []
    spans: list[tuple[float, float]] = []
    run, started, ended = runner.Runner._run, crew.Crew.start, crew.Crew.end

    def measuring(self: runner.Runner, *words: Any) -> dict[str, Any]:
        began = time.monotonic()
        try:
            return run(self, *words)
        finally:
            spans.append((began, time.monotonic()))

    def start(self: crew.Crew, *words: Any) -> crew.Worker:
        changes.append(time.monotonic())
        return started(self, *words)

    def end(self: crew.Crew, workers: Any) -> None:
        ending = list(workers)
        changes.extend([time.monotonic()] * len(ending))
        ended(self, ending)
        changes.extend([time.monotonic()] * len(ending))

    monkeypatch.setattr(runner.Runner, "_run", measuring)
    monkeypatch.setattr(crew.Crew, "start", start)
    monkeypatch.setattr(crew.Crew, "end", end)
    path = scenario(tmp_path, ["timeslice", "gate"], requests=20)
    fields = yaml.safe_load(path.read_text())
    one = fields["experiments"][0]
    fields["experiments"] += [
        {**one, "hp": {**HP, "options": {"kernel_us": 400, "kernels": number}}} for number in (5, 6)
    ]
    path.write_text(yaml.safe_dump(fields))
    assert measured(path, tmp_path / "out", gpus="0,1") == 0
    files = [read(found) for found in (tmp_path / "out" / "runs").rglob("*.json.gz")]
    assert len(files) == len(spans) == 3 * 5
    assert {each["device"]["index"] for each in files} == {0, 1}
    assert all(each["disturbances"] == [] for each in files)
    assert changes
    assert [(change, span) for change in changes for span in spans if span[0] <= change <= span[1]] == []


def test_a_rate_above_capacity_fails_with_both_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scenario(tmp_path, ["timeslice"], arrivals={"kind": "poisson", "rate": 10_000})
    assert measured(path, tmp_path / "out") == 1
    assert "hp gets 10000.0 requests/s, but can serve" in capsys.readouterr().err


def folders(process_id: int) -> set[Path]:
    """Return the temporary folders that the environment of a process names."""
    variables = Path(f"/proc/{process_id}/environ").read_bytes().decode().split("\0")
    named = (word.partition("=")[2] for word in variables if word.startswith(("ORION_SIM_STATE=", "ORION_ROOT=")))
    return {Path(word) for word in named}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "TERM"])
def test_an_interrupted_measurement_ends_everything_and_can_be_resumed(number: signal.Signals, tmp_path: Path) -> None:
    path, output = scenario(tmp_path, ["gate"], requests=2000), tmp_path / "out"
    command = "import sys; from orion.bench.colocation import measure; from pathlib import Path; " \
        "sys.exit(measure.run(measure.Options(Path(sys.argv[1]), Path(sys.argv[2]), simulated=True)))"  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", command, str(path), str(output)], stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip

    def workers() -> set[int]:
        assert process.poll() is None
        found = children(process.pid)
        return found if len(found) >= 4 else set()  # hp and be, each with and without the hook, and an agent

    started = eventually(workers, seconds=100)
    used = set().union(*map(folders, started))
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"the same command continues from there" in errors
    eventually(lambda: not any(map(is_running, started)))
    assert used
    assert [folder for folder in used if folder.exists()] == []
    assert not (output / PAIR / "simulated-training" / "gate.json.gz").exists()
    assert os.listdir(output)
    shutil.rmtree(output)
