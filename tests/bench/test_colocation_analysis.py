"""The figures that the analysis computes from run files."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orion.bench.colocation import analysis, rates
from orion.bench.colocation.ceiling import Speeds
from orion.bench.colocation.run_files import Run, RunFolder, read
from orion.bench.colocation.summary import PairFigures, SystemFigures
from orion.errors import Unreadable
from tests.bench.colocation_folder import SYSTEMS, ColocationFolder, System, workload

HP = workload("decode", "gpt-decode", batch=1)
BE = workload("gemm", "gemm", size=8192)
NEVER = float("inf")


def analysed(folder: RunFolder, hp: str = "decode", be: str = "gemm") -> PairFigures:
    pair = analysis.analyse(folder, hp, be, rates.be_solos(folder, hp))
    assert pair is not None
    return pair


def system(pair: PairFigures, name: str) -> SystemFigures:
    return next(each for each in pair.systems if each.system == name)


def chosen(*names: str) -> dict[str, System]:
    return {name: SYSTEMS[name] for name in names}


@pytest.fixture
def measured(tmp_path: Path) -> tuple[ColocationFolder, RunFolder]:
    made = ColocationFolder(tmp_path)
    made.pair(HP, BE, chosen("gate", "mps+sm-cap"))
    return made, RunFolder(tmp_path)


def run(**fields: Any) -> Run:
    whole = {"format": 1, "system": "alone", "system_spec": {"kind": "alone"}, "round": 0, "window": [1.0, 3.0]}
    return Run.model_validate({**whole, **fields})


def test_under_a_gate_hp_has_the_modelled_speed_and_be_gets_the_remaining_time(
    measured: tuple[ColocationFolder, RunFolder],
) -> None:
    pair = analysed(measured[1])
    gate = system(pair, "gate")
    assert gate.latency["p99"].median == pytest.approx(1.01, abs=0.01)
    assert gate.latency["p50"].low <= gate.latency["p50"].median <= gate.latency["p50"].high
    assert gate.busy_time is not None
    assert gate.busy_time.median == pytest.approx(1 / 0.995, abs=1e-3)
    assert gate.be is not None
    assert gate.be.rounds == pytest.approx([1 - share / 0.995 for share in pair.hp_share], abs=0.01)
    assert gate.hp_throughput is not None
    assert gate.hp_throughput.rounds == pytest.approx(pair.hp_share, rel=0.01)
    assert gate.total is not None
    assert gate.total.median == pytest.approx(1.0, abs=0.02)


def test_bes_bound_depends_on_hps_share_and_busy_periods(
    measured: tuple[ColocationFolder, RunFolder],
) -> None:
    pair = analysed(measured[1])
    expected = [
        0.97 * (1 - share - periods * 0.15e-3)
        for share, periods in zip(pair.hp_share, pair.busy_periods_per_second, strict=True)
    ]
    assert pair.be_bound == pytest.approx(expected)
    assert pair.hp_service_ms == pytest.approx([4.0] * 3, rel=0.01)
    # In an M/D/1 queue with load rho, a share of 1 - rho of the requests finds the server idle.
    assert np.mean(pair.busy_periods_per_second) == pytest.approx(125 * 0.5, rel=0.15)
    gate = system(pair, "gate")
    assert gate.be_over_bound is not None
    assert gate.be is not None
    assert gate.be_over_bound.rounds == pytest.approx(np.asarray(gate.be.rounds) / pair.be_bound)


def test_busy_periods_end_with_a_gap_that_is_long_enough() -> None:
    alone = run(arrivals=[1.0, 1.01, 1.02, 1.5], starts=[1.0, 1.01, 1.0203, 1.5], ends=[1.0099, 1.02, 1.03, 1.6])
    assert analysis.busy_periods_per_second(alone) == pytest.approx(3 / 2)


def test_requests_of_the_lead_in_do_not_count() -> None:
    alone = run(arrivals=[0.5, 1.0, 1.5], starts=[0.5, 1.0, 1.5], ends=[0.9, 1.1, 1.7])
    assert alone.latencies == pytest.approx([0.1, 0.2])
    assert alone.services == pytest.approx([0.1, 0.2])


def test_only_iterations_inside_the_window_count() -> None:
    assert run(ends=[0.5, 1.0, 1.5, 2.1, 3.2]).iterations == pytest.approx([0.5, 0.6])


def test_a_round_without_its_own_alone_does_not_count(measured: tuple[ColocationFolder, RunFolder]) -> None:
    (measured[0].root / "runs/decode/1/alone.json.gz").unlink()
    pair = analysed(measured[1])
    assert pair.rounds == [0, 2]
    assert system(pair, "gate").rounds == [0, 2]


def test_a_round_without_be_alone_has_figures_of_hp_only(
    measured: tuple[ColocationFolder, RunFolder],
) -> None:
    (measured[0].root / "runs/decode/1/be-alone/gemm.json.gz").unlink()
    gate = system(analysed(measured[1]), "gate")
    assert gate.rounds == [0, 1, 2]
    assert gate.be is not None
    assert len(gate.be.rounds) == 2
    assert gate.be_over_bound is not None
    assert len(gate.be_over_bound.rounds) == 2


def test_a_failed_run_is_left_out_and_named(measured: tuple[ColocationFolder, RunFolder]) -> None:
    made, folder = measured
    made.write(
        "decode/1/gemm/gate.json.gz", system="gate", system_spec=SYSTEMS["gate"][0], round=1, window=(1.0, 2.0),
        arrivals=[1.0, 2.0], error="the be process died (signal 9)",
    )  # fmt: skip
    assert system(analysed(folder), "gate").rounds == [0, 2]
    assert list(folder.failures.values()) == ["runs/decode/1/gemm/gate failed: the be process died (signal 9)"]


@pytest.mark.parametrize("requests", [0, 1, 3])
def test_a_run_with_other_arrivals_than_alone_does_not_count(
    requests: int, measured: tuple[ColocationFolder, RunFolder]
) -> None:
    made, folder = measured
    arrivals = [1.0 + index for index in range(requests)]
    made.write(
        "decode/1/gemm/gate.json.gz", system="gate", system_spec=SYSTEMS["gate"][0], round=1, window=(1.0, 2.0),
        arrivals=arrivals, starts=arrivals, ends=[arrival + 0.5 for arrival in arrivals],
    )  # fmt: skip
    assert system(analysed(folder), "gate").rounds == [0, 2]
    assert "its arrivals differ from those of alone" in next(iter(folder.failures.values()))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", "is broken", id="empty"),
        pytest.param(b"{}", "is broken", id="not compressed"),
        pytest.param(gzip.compress(b"{}")[:-9], "is broken", id="cut short"),
        pytest.param(gzip.compress(b"[1]"), "is broken: the run", id="no object"),
        pytest.param(gzip.compress(b'{"format": 2}'), "format", id="of another version"),
    ],
)
def test_a_broken_file_is_named_in_one_sentence(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "alone.json.gz"
    path.parent.mkdir()
    path.write_bytes(data)
    with pytest.raises(Unreadable, match=words) as caught:
        read(path, tmp_path)
    assert str(caught.value).startswith("runs/alone.json.gz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"arrivals": [1.0], "starts": [1.0], "ends": []}, "not of the same requests"),
        ({"ends": [2.0, 1.0]}, "ends do not ascend"),
        ({"window": [3.0, 1.0]}, "before it begins"),
        ({"be": [{"id": "a", "workload": "gemm", "ends": [1.0, 0.5]}]}, "be a's ends"),
        ({"arrivals": [float("nan")]}, "finite"),
    ],
)
def test_inconsistent_runs_are_rejected(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(**fields)


def test_several_be_clients_add_up_and_their_fairness_is_reported(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(HP, BE, chosen("gate"), rounds=1, clients=4)
    path = tmp_path / "runs/decode/0/gemm/gate.json.gz"
    fields = json.loads(gzip.decompress(path.read_bytes()))
    gate = system(analysed(RunFolder(tmp_path)), "gate")
    assert gate.be is not None
    assert gate.be.median == pytest.approx(0.5, abs=0.03)
    assert gate.unfairness is not None
    assert gate.unfairness.median < 0.01
    fields["be"][0]["ends"] = fields["be"][0]["ends"][::2]
    path.write_bytes(gzip.compress(json.dumps(fields).encode()))
    unfair = system(analysed(RunFolder(tmp_path)), "gate").unfairness
    assert unfair is not None
    assert unfair.median == pytest.approx(1 - 0.5 / 0.875, abs=0.02)
    for index, request in enumerate((0.1, 0.2, 0.2, 0.2)):
        fields["be"][index]["request"] = request
    path.write_bytes(gzip.compress(json.dumps(fields).encode()))
    requested = system(analysed(RunFolder(tmp_path)), "gate").unfairness
    assert requested is not None
    assert requested.median < 0.02


def test_training_is_compared_by_its_iterations(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.closed(HP, BE, {"orion": ({"kind": "orion", "mode": "timeslice"}, Speeds(1.0, 0.96, 0.3), NEVER)})
    pair = analysed(RunFolder(tmp_path))
    orion = system(pair, "orion")
    assert orion.iteration is not None
    assert orion.iteration.median == pytest.approx(1 / 0.96, rel=2e-3)
    assert orion.latency["p50"].median == pytest.approx(1 / 0.96, rel=0.05)
    assert orion.be is not None
    assert orion.be.median == pytest.approx(0.3, rel=0.02)
    assert orion.total is not None
    assert orion.total.median == pytest.approx(1.26, rel=0.01)
    assert pair.be_bound == []
    assert orion.be_over_bound is None
    assert orion.busy_time is None


def test_the_ceiling_comes_from_closed_loops_of_the_same_pair(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(HP, BE, chosen("gate", "orion-1.2", "orion-1.4"))
    assert analysed(RunFolder(tmp_path)).ceilings == []
    made.ceiling(HP, BE, chosen("orion-1.4"))
    pair = analysed(RunFolder(tmp_path))
    assert [each.system for each in pair.systems] == ["gate", "orion-1.2", "orion-1.4"]
    assert [curve.mode for curve in pair.ceilings] == ["mps"]
    first = pair.ceilings[0].closed_loops[0]
    assert (first.system, first.round) == ("orion-1.4", 0)
    assert (first.alone, first.overlapped, first.be_overlapped) == pytest.approx((0.93, 0.7, 0.6), rel=0.02)
    assert pair.ceilings[0].hp_p99 == sorted(pair.ceilings[0].hp_p99)
    for name in ("orion-1.2", "orion-1.4"):
        figure = system(pair, name).of_ceiling
        assert figure is not None
        assert figure.median == pytest.approx(1.0, abs=0.03)
    assert system(pair, "gate").of_ceiling is None


def test_a_system_is_compared_with_the_ceiling_of_its_own_mode(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    spec = {"kind": "orion", "mode": "threads", "policy": "orion"}
    threads: System = (spec, Speeds(1.0, 0.75, 0.6), 0.1)
    made.pair(HP, BE, {**chosen("orion-1.2"), "orion-in-threads": threads})
    made.ceiling(HP, BE, {"orion-in-threads": threads}, mode="threads")
    pair = analysed(RunFolder(tmp_path))
    assert [curve.mode for curve in pair.ceilings] == ["threads"]
    figure = system(pair, "orion-in-threads").of_ceiling
    assert figure is not None
    assert figure.median == pytest.approx(1.0, abs=0.03)
    assert system(pair, "orion-1.2").of_ceiling is None


def test_a_mode_whose_cost_was_not_measured_is_assumed_to_cost_nothing(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.pair(HP, BE, chosen("orion-1.2"), rounds=1)
    made.ceiling(HP, BE, chosen("orion-1.4"), rounds=1)
    (tmp_path / "runs/decode/0/mps-closed-loop.json.gz").unlink()
    assert analysed(RunFolder(tmp_path)).ceilings[0].closed_loops[0].alone == 1.0


def test_latencies_for_pictures_begin_with_alone(measured: tuple[ColocationFolder, RunFolder]) -> None:
    folder = measured[1]
    pair = analysed(folder)
    found = analysis.latencies(folder, pair)
    assert list(found) == ["alone", "gate", "mps+sm-cap"]
    assert {len(times) for times in found.values()} == {1800}
    assert np.percentile(found["alone"], 99) == pytest.approx(np.mean(pair.alone_ms["p99"]), rel=0.3)


def test_an_hp_without_a_complete_round_has_no_figures(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path)
    made.write("decode/0/gemm/gate.json.gz", system="gate", system_spec={"kind": "orion"}, window=(0.0, 1.0))
    folder = RunFolder(tmp_path)
    assert analysis.analyse(folder, "decode", "gemm", {}) is None
