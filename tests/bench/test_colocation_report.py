"""report.md, summary.json and plots of an output folder, and the verdicts about targets."""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from orion.bench import colocation, raw_data
from orion.bench.colocation import report, targets
from orion.bench.colocation.ceiling import Speeds
from orion.bench.colocation.summary import Summary, Verdict
from orion.errors import NotFound
from tests.bench.colocation_folder import SYSTEMS, ColocationFolder, System, workload

NEVER = float("inf")
DECODE = workload("decode", "gpt-decode-unsynchronised", batch=1)
RESNET = workload("resnet", "resnet50-inference", batch=64)
GEMM = workload("gemm", "gemm", size=8192)
TRAINING = workload("training", "resnet50-training", batch=256)


def chosen(*names: str) -> dict[str, System]:
    return {name: SYSTEMS[name] for name in names}


def verdicts(summary: Summary) -> dict[str, Verdict]:
    return {verdict.target: verdict for verdict in summary.verdicts}


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that matplotlib is not installed: most of these tests need no plots, which take time."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    for name in ("plots", "plot_labels"):
        monkeypatch.delitem(sys.modules, f"orion.bench.colocation.{name}", raising=False)
        monkeypatch.delattr(colocation, name, raising=False)


def test_report_summary_and_plots_are_written_and_linked(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(DECODE, GEMM, chosen("timeslice", "gate", "orion-1.2", "mps+sm-cap"), rounds=2, requests=300)
    made.ceiling(DECODE, GEMM, chosen("mps+sm-cap"), rounds=2)
    made.closed({**TRAINING, "id": "hp-training"}, GEMM, chosen("gate-in-mps", "mps+sm-cap"), rounds=2)
    summary = report.write(tmp_path)
    assert [pair.name for pair in summary.pairs] == ["decode beside gemm", "hp-training beside gemm"]
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# made-up\n")
    assert "NVIDIA H200, 580.159.04" in text
    assert "| orion-1.2 | 1." in text
    assert "closed loops in mps: hp keeps 0.9" in text
    plots = [plot for pair in summary.pairs for plot in pair.plots]
    assert len(plots) == 5
    for plot in plots:
        assert f"]({plot})" in text
        data = (tmp_path / plot).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        assert 600 <= height <= width <= 1100
    assert Summary.model_validate_json((tmp_path / "summary.json").read_text()) == summary


def test_no_front_is_drawn_if_every_system_is_too_slow_for_it(tmp_path: Path) -> None:
    slow: System = (
        {"kind": "orion", "mode": "mps", "policy": "orion", "max_slowdown": 2.0},
        Speeds(0.05, 0.05, 0.5),
        NEVER,
    )
    ColocationFolder(tmp_path).pair(DECODE, GEMM, {"orion-2": slow}, requests=300)
    [pair] = report.write(tmp_path).pairs
    assert [plot.partition("--")[0] for plot in pair.plots] == ["latency", "tradeoff"]


@pytest.mark.usefixtures("without_plots")
def test_without_matplotlib_tables_are_written_and_a_sentence_says_how_to_get_plots(tmp_path: Path) -> None:
    ColocationFolder(tmp_path).pair(DECODE, GEMM, chosen("gate"), rounds=1, requests=100)
    summary = report.write(tmp_path)
    assert summary.without_plots is not None
    assert "matplotlib is not installed" in summary.without_plots
    assert summary.without_plots in (tmp_path / "report.md").read_text()
    assert not list(tmp_path.glob("*.png"))
    assert (tmp_path / "summary.json").exists()


@pytest.mark.usefixtures("without_plots")
def test_all_failed_and_broken_runs_are_listed(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(DECODE, GEMM, chosen("gate"), rounds=2, requests=100)
    failed: dict[str, Any] = {"system": "mps", "system_spec": {"kind": "mps"}, "window": (1.0, 2.0)}
    made.write("decode/0/gemm/mps.json.gz", **failed, error="there is no nvidia-cuda-mps-control")
    made.write("lost/0/gemm/mps.json.gz", **failed, error="hp hung for 60 s")
    (tmp_path / "runs/decode/1/be-alone/gemm.json.gz").write_bytes(b"\x1f\x8b")
    summary = report.write(tmp_path)
    text = (tmp_path / "report.md").read_text()
    for sentence in (
        "runs/decode/0/gemm/mps failed: there is no nvidia-cuda-mps-control",
        "runs/lost/0/gemm/mps failed: hp hung for 60 s",
        "runs/decode/1/be-alone/gemm.json.gz is broken",
    ):
        assert any(failure.startswith(sentence) for failure in summary.failures)
        assert sentence in text
    assert len(summary.failures) == 3


@pytest.mark.usefixtures("without_plots")
def test_the_report_first_says_that_the_gpu_is_simulated(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(DECODE, GEMM, chosen("gate"), rounds=1, requests=50)
    (tmp_path / "machine.json").write_text('{"gpu": "simulated", "simulated": true}')
    assert report.write(tmp_path).simulated
    assert "simulated GPU" in (tmp_path / "report.md").read_text().split("## Machine")[0]


@pytest.mark.usefixtures("without_plots")
def test_the_report_of_a_measurement_that_just_began_is_empty(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.closed(DECODE, GEMM, {}, rounds=1)
    (tmp_path / "machine.json").write_text("{")
    summary = report.write(tmp_path)
    assert summary.pairs == []
    assert summary.failures[0].startswith("machine.json is broken")
    assert "No round has" in (tmp_path / "report.md").read_text()


def test_a_folder_without_runs_is_rejected_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="holds no runs"):
        report.write(tmp_path)


@pytest.mark.usefixtures("without_plots")
def test_a_second_report_is_equal_to_the_first(tmp_path: Path) -> None:
    ColocationFolder(tmp_path).pair(DECODE, GEMM, chosen("gate", "timeslice"), rounds=2, requests=100)
    report.write(tmp_path)
    first = [(tmp_path / name).read_text() for name in ("report.md", "summary.json")]
    report.write(tmp_path)
    assert [(tmp_path / name).read_text() for name in ("report.md", "summary.json")] == first
    assert json.loads(first[1])["format"] == 1


@pytest.mark.usefixtures("without_plots")
def test_targets_that_were_measured_in_part_are_incomplete(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(RESNET, TRAINING, chosen("gate", "timeslice"), load=0.35)
    judged = verdicts(report.write(tmp_path))
    assert judged["hp's tail, mean"].status == "incomplete"
    assert "1 of 8 pairs" in judged["hp's tail, worst"].figures
    assert judged["hp's tail beside GEMM"].status == "not measured"
    assert judged["fairness"].status == "not measured"


@pytest.mark.usefixtures("without_plots")
def test_a_target_is_missed_even_if_only_part_was_measured(tmp_path: Path) -> None:
    slow: System = ({"kind": "orion", "mode": "timeslice", "policy": "orion"}, Speeds(0.9, 0.9, 0.0), 0.0)
    ColocationFolder(tmp_path).pair(RESNET, TRAINING, {"orion": slow}, load=0.35)
    judged = verdicts(report.write(tmp_path))
    assert judged["hp's tail, worst"].status == "missed"
    assert judged["be's share"].status == "missed"


@pytest.mark.usefixtures("without_plots")
def test_systems_with_a_budget_and_pairs_with_another_load_do_not_count_for_the_tail(tmp_path: Path) -> None:
    spec = {"kind": "orion", "mode": "timeslice", "policy": "orion"}
    made = ColocationFolder(tmp_path)
    made.pair(RESNET, TRAINING, {"granted": ({**spec, "max_slowdown": 1.3}, Speeds(1.0, 1.0, 0.0), 0.0)}, load=0.35)
    made.pair({**RESNET, "id": "busier"}, TRAINING, {"orion": (spec, Speeds(1.0, 1.0, 0.0), 0.0)}, load=0.5)
    assert verdicts(report.write(tmp_path))["hp's tail, mean"].status == "not measured"


@pytest.mark.usefixtures("without_plots")
def test_overlap_is_judged_by_its_best_point_within_the_p99_limit_and_by_the_ceiling(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(DECODE, GEMM, chosen("gate", "orion-1.2", "orion-1.4"), load=0.52, requests=1000)
    made.ceiling(DECODE, GEMM, chosen("mps+sm-cap"))
    judged = verdicts(report.write(tmp_path))
    assert judged["overlap at 2.2"].status == "met"
    assert "orion-1.4" in judged["overlap at 2.2"].figures
    assert judged["overlap at 1.3"].status == "missed"
    assert judged["overlap against the ceiling"].status == "incomplete"
    assert "decode b1 beside GEMM 8192 0.9" in judged["overlap against the ceiling"].figures


@pytest.mark.usefixtures("without_plots")
def test_training_and_fairness_are_judged(tmp_path: Path) -> None:
    spec = {"kind": "orion", "mode": "timeslice", "policy": "orion"}
    made = ColocationFolder(tmp_path)
    stalled = workload("stalled", "resnet50-training", batch=256, stall=0.3)
    made.closed(stalled, TRAINING, {"orion": (spec, Speeds(1.0, 0.97, 0.29), NEVER)})
    made.pair(RESNET, {**TRAINING, "id": "four"}, chosen("orion"), load=0.35, clients=4)
    made.pair(RESNET, TRAINING, chosen("orion"), load=0.35)
    judged = verdicts(report.write(tmp_path))
    assert judged["hp training"].status == "met"
    assert "0.97 of the stall" in judged["hp training"].figures
    assert judged["fairness"].status == "met"
    assert "beside one" in judged["fairness"].figures
    text = (tmp_path / "report.md").read_text()
    assert "| system | be client | request | GPU time | part of be's GPU time | fair part | deviation |" in text
    assert "| orion | four-0 | none | " in text


@pytest.mark.usefixtures("without_plots")
def test_a_run_on_another_gpu_than_alone_is_reported(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(DECODE, GEMM, chosen("gate"), rounds=1, requests=50)
    path = tmp_path / "runs/decode/0/gemm/gate.json.gz"
    raw_data.write(path, {**raw_data.read(path), "device": {"uuid": "GPU-2"}})
    summary = report.write(tmp_path)
    assert summary.failures == ["runs/decode/0/gemm/gate counts, but ran on another GPU than alone of its round"]
    assert len(summary.pairs) == 1


@pytest.mark.usefixtures("without_plots")
def test_long_kernels_are_judged_at_the_rates_of_the_reference(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    long = workload("long", "long-kernel", ms=50)
    made.pair(RESNET, long, chosen("orion"), load=0.258, service=0.0043, requests=300)
    judged = verdicts(report.write(tmp_path))
    assert judged["long kernels"].status == "incomplete"
    assert "ResNet-50 b64" in judged["long kernels"].figures
    assert "the gate's 54.9 ms of the reference measurement" in judged["long kernels"].figures
    assert judged["long kernels under MPS"].status == "not measured"


@pytest.mark.usefixtures("without_plots")
def test_long_kernels_are_compared_with_the_gate_of_the_same_rounds(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    long = workload("long", "long-kernel", ms=50)
    slow: System = ({"kind": "orion", "mode": "timeslice", "policy": "orion"}, Speeds(0.8, 0.8, 0.0), 0.0)
    made.pair(RESNET, long, {**chosen("gate"), "orion": slow}, load=0.258, service=0.0043, requests=300)
    verdict = verdicts(report.write(tmp_path))["long kernels"]
    assert verdict.status == "missed"
    assert "x gate (orion)" in verdict.figures


@pytest.mark.usefixtures("without_plots")
def test_hiccups_and_disturbed_runs_are_reported_and_not_filtered(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(DECODE, GEMM, chosen("gate", "orion"), rounds=2, requests=100)
    assert "| hiccups |" not in (report.write(tmp_path), (tmp_path / "report.md").read_text())[1]
    path = tmp_path / "runs/decode/1/gemm/gate.json.gz"
    run = raw_data.read(path)
    run["ends"][-1] = run["starts"][-1] + 0.0301
    event = {"gpu": 3, "what": "processes for another", "from": 0.5, "to": 1.5}
    raw_data.write(path, {**run, "disturbances": [event]})
    alone = tmp_path / "runs/decode/0/alone.json.gz"
    other = raw_data.read(alone)
    other["ends"][-1] = other["starts"][-1] + 0.05
    raw_data.write(alone, other)
    (pair,) = report.write(tmp_path).pairs
    found = {system.system: system.hiccups for system in pair.systems}
    assert (found["gate"].number, found["gate"].disturbed) == (1, 1)
    assert found["gate"].longest_ms == pytest.approx(30.1)
    assert found["orion"].words == ""
    text = (tmp_path / "report.md").read_text()
    assert "| hiccups |" in text
    assert "| 1 (longest 30 ms), 1 runs disturbed |" in text
    assert "hiccups: 1 (longest 50 ms)" in text


def test_targets_have_unique_names() -> None:
    names = [target.name for target in targets.TARGETS]
    assert len(names) == len(set(names))
    assert {verdict.status for verdict in targets.judge_all([])} == {"not measured"}
