"""The tables about hp's busy periods, from raw data with known waits."""

from pathlib import Path

import pytest

from orion.bench import busy_periods
from orion.bench.colocation.run_files import RunFolder
from tests.bench.colocation_folder import ColocationFolder

HP = {"id": "server", "workload": "resnet50-inference", "options": {}}
BE = {"id": "trainer", "workload": "resnet50-training", "options": {}}
ARRIVALS = [0.01 * number for number in range(300)]  # seconds; a queued request follows every third of these
ARRIVALS = sorted(ARRIVALS + [due + 0.001 for due in ARRIVALS[::3]])


def served(head: float, stall_at: int | None = None) -> tuple[list[float], list[float]]:
    """Serve each request in 4 ms. A request that finds hp idle takes `head` seconds more; a stall adds 50 ms."""
    starts, ends, free = [], [], 0.0
    for number, due in enumerate(ARRIVALS):
        longer = (head if due > free else 0.0) + (0.05 if number == stall_at else 0.0)
        starts.append(max(due, free))
        free = starts[-1] + 0.004 + longer
        ends.append(free)
    return starts, ends


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of three rounds; in the last round, the run of hp alone has a stall."""
    made = ColocationFolder(tmp_path / "out")
    for number in range(3):
        about = {"hp": HP, "round": number, "window": (0.5, 3.0)}
        closed = [0.004 * step for step in range(800)]
        made.write(f"server/{number}/hp-closed-loop.json.gz", system="x", system_spec={"kind": "alone"},
                   **about, ends=closed)  # fmt: skip
        be = {**BE, "amount": 1.0}
        be_alone = [{**be, "ends": [0.01 * step for step in range(320)]}]
        made.write(f"server/{number}/be-alone/trainer.json.gz", system="x", system_spec={"kind": "alone"},
                   round=number, window=(0.5, 3.0), be=be_alone)  # fmt: skip
        for path, head, stall in (("alone", 0.0, 200 if number == 2 else None), ("trainer/orion", 0.0005, None)):
            starts, ends = served(head, stall)
            spec = {"kind": "alone"} if path == "alone" else {"kind": "orion", "mode": "timeslice", "policy": "orion"}
            clients = [] if path == "alone" else [{**be, "ends": [0.02 * step for step in range(160)]}]
            made.write(f"server/{number}/{path}.json.gz", system=path.rpartition("/")[2], system_spec=spec, **about,
                       arrivals=ARRIVALS, starts=starts, ends=ends, be=clients)  # fmt: skip
    return made.root


def test_only_heads_of_busy_periods_took_longer(folder: Path) -> None:
    pairs = list(busy_periods.rounds_by_pair(RunFolder(folder)))
    row = busy_periods.waits(pairs)[-1]
    assert row.count("+0.50") == 4  # percentiles of heads
    assert row.count("+0.00") == 4  # percentiles of queued requests


def test_a_stall_is_listed_and_its_busy_period_is_left_out_beside_be_and_alone(folder: Path) -> None:
    found = RunFolder(folder)
    assert "| server alone, round 3 | 1 | 50.0 |" in busy_periods.stalls(found)[2]
    _, measured, without_periods = busy_periods.tails(list(busy_periods.rounds_by_pair(found)))[2].split("|")[1:4]
    assert len(measured.split(",")) == 3
    assert ratios(without_periods) == pytest.approx([ratios(without_periods)[0]] * 3, abs=0.01)


def ratios(cell: str) -> list[float]:
    """Return the rounds' figures in a cell."""
    return [float(text) for text in cell.partition("(")[2].rstrip(") ").split(",")]


def test_late_heads_and_queueing_explain_the_tail_if_nothing_else_is_late(folder: Path) -> None:
    _, measured, _, switch, heads = busy_periods.tails(list(busy_periods.rounds_by_pair(RunFolder(folder))))[2].split(
        "|"
    )[1:6]
    assert ratios(heads)[:2] == pytest.approx(ratios(measured)[:2], abs=0.002)
    assert all(1 < ours < theirs for ours, theirs in zip(ratios(switch)[:2], ratios(heads)[:2], strict=True))


def test_unused_time_is_divided_among_busy_periods(folder: Path) -> None:
    name, rounds = next(busy_periods.rounds_by_pair(RunFolder(folder)))
    row = [float(cell) for cell in busy_periods.losses([(name, rounds)])[2].split("|")[2:-1]]
    share, be, periods, lost, longer, rest = row
    assert [share, be, longer] == pytest.approx([0.533, 0.5, 0.5], abs=0.01)
    assert lost == pytest.approx(1e3 * (1 - share - be) / periods, abs=0.02)
    assert rest == pytest.approx(lost - longer, abs=0.02)


def test_queueing_turns_a_slowdown_into_a_tail(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path / "out")
    made.pair(HP, BE, rounds=1)
    rows = [row.split("|")[2:-1] for row in busy_periods.queueing(RunFolder(made.root))[2:]]
    modelled = [float(row[3]) for row in rows if not row[0].strip()]
    assert modelled == sorted(modelled)
    assert modelled[0] > 1.0


def test_extra_service_time_is_listed_by_position_in_the_busy_period(folder: Path) -> None:
    found = RunFolder(folder)
    header, _, row = busy_periods.ages(found, list(busy_periods.rounds_by_pair(found)))
    cells = dict(zip(header.split("|")[1:-1], row.split("|")[1:-1], strict=True))
    assert cells[" head "].strip() == "+0.50"
    assert cells[" 2nd "].strip() == "+0.00"
    assert cells[" later "].strip() == "-"  # no busy period is that long


def test_tables_of_overlap_have_the_gate_and_the_budgets(tmp_path: Path) -> None:
    made = ColocationFolder(tmp_path / "out")
    made.pair(HP, BE, rounds=1)
    found = RunFolder(made.root)
    for rows in (busy_periods.queueing(found), busy_periods.ages(found, [])):
        for system in ("gate-in-mps", "orion-1.2", "orion-1.4"):
            assert sum(system in row for row in rows) == 1
        assert not any("timeslice" in row for row in rows)


def test_a_folder_without_runs_is_rejected_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert busy_periods.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
