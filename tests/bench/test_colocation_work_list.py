"""The choice of a GPU's next unit, and the expected duration of all units."""

from pathlib import Path
from typing import Any

from orion.bench.colocation.plan import Plan, Unit
from orion.bench.colocation.scenario import Scenario
from orion.bench.colocation.work_list import START_SECONDS, WorkList, expected_seconds

LONG, SHORT = ([Unit(name, number, ()) for number in range(3)] for name in ("long", "short"))


def seconds(unit: Unit) -> float:
    return {"long": 100.0, "short": 40.0, "other": 50.0, "done": 0.0}[unit.hp_id]


def ten_seconds(unit: Unit) -> float:
    return 10.0


def taken(work: WorkList, *gpus: int) -> list[tuple[str, int] | None]:
    return [(unit.hp_id, unit.round) if (unit := work.take(gpu)) else None for gpu in gpus]


def test_gpus_begin_with_the_longest_units_of_different_hps_and_keep_their_hp() -> None:
    work = WorkList([*SHORT, *LONG, Unit("other", 0, ())], seconds)
    assert taken(work, 0, 1, 2) == [("long", 0), ("other", 0), ("short", 0)]
    assert taken(work, 2, 0, 1) == [("short", 1), ("long", 1), ("long", 2)]
    assert taken(work, 1, 0, 2) == [("short", 2), None, None]


def test_units_with_the_highest_priority_are_taken_first() -> None:
    experiment: dict[str, Any] = {
        "hp": {"workload": "gemm"}, "arrivals": {"kind": "poisson", "load": 0.4}, "be": [{"workload": "gemm"}],
        "systems": ["alone", "mps"],
    }  # fmt: skip
    later = {**experiment, "hp": {"workload": "gemm", "options": {"size": 2048}}}
    fields = {"name": "one", "rounds": 2, "experiments": [later, {**experiment, "priority": 1}]}
    plan = Plan(Scenario.model_validate(fields).resolved(Path()))
    work = WorkList(plan.units, lambda unit: 1.0)
    units = [work.take(0) for _ in range(4)]
    assert [unit.priority for unit in units if unit] == [1, 1, 0, 0]


def test_a_reserved_unit_stays_with_its_gpu_until_others_run_out_of_work() -> None:
    work = WorkList([*LONG[:2], *SHORT[:1]], seconds)
    assert taken(work, 0) == [("long", 0)]
    assert work.reserve(0) == LONG[1]
    assert work.reserve(0) == LONG[1]
    assert work.reserve(1) == SHORT[0]
    assert taken(work, 1, 0) == [("short", 0), ("long", 1)]
    again = WorkList(LONG[:2], seconds)
    assert taken(again, 0) == [("long", 0)]
    assert again.reserve(0) == LONG[1]
    assert again.reserve(1) is None
    assert taken(again, 1, 0) == [("long", 1), None]


def test_every_unit_is_taken_once() -> None:
    work = WorkList([*SHORT, *LONG], seconds)
    found = []
    while (unit := work.take(0)) is not None:
        found.append((unit.hp_id, unit.round))
    assert found == [("long", 0), ("long", 1), ("long", 2), ("short", 0), ("short", 1), ("short", 2)]


def test_more_gpus_take_less_time_and_measured_units_take_none() -> None:
    units = [*LONG, *SHORT, Unit("done", 0, ())]
    assert expected_seconds(units, seconds, ten_seconds, 1) == 3 * 140 + 2 * START_SECONDS
    assert expected_seconds([*units[:1], units[-1]], seconds, ten_seconds, 8) == 100 + START_SECONDS
    assert expected_seconds([], seconds, ten_seconds, 2) == 0.0
    assert expected_seconds(units, seconds, ten_seconds, 2) < expected_seconds(units, seconds, ten_seconds, 1)


def test_a_start_of_processes_idles_the_other_gpus() -> None:
    # The second GPU has finished the short units. Before it starts the last long one, it waits for the first GPU's run.
    expected = START_SECONDS + 3 * 40 + (10 / 2 + START_SECONDS) + 100
    assert expected_seconds([*LONG, *SHORT], seconds, ten_seconds, 2) == expected
