"""Which round a GPU takes next, and how long all of them take."""

from orion.bench.colocation.plan import Unit
from orion.bench.colocation.work_list import START_SECONDS, WorkList, expected_seconds

LONG, SHORT = ([Unit(name, number, ()) for number in range(3)] for name in ("long", "short"))


def seconds(unit: Unit) -> float:
    return {"long": 100.0, "short": 40.0, "other": 50.0, "done": 0.0}[unit.hp_id]


def test_the_longest_is_taken_but_not_where_a_shorter_one_saves_the_start_of_processes() -> None:
    work = WorkList([*SHORT, *LONG[:2], Unit("other", 0, ())], seconds)
    first, second = work.take(None), work.take(None)
    assert first is not None
    assert second is not None
    assert (first.unit.hp_id, first.unit.round, first.fresh) == ("long", 0, True)
    assert (second.unit.hp_id, second.unit.round) == ("long", 1)
    third = work.take("short")
    assert third is not None
    assert (third.unit.hp_id, third.unit.round, third.fresh) == ("short", 0, False)


def test_every_unit_is_taken_once() -> None:
    work = WorkList([*SHORT, *LONG], seconds)
    taken = []
    before = None
    while (took := work.take(before)) is not None:
        before = took.unit.hp_id
        taken.append((took.unit.hp_id, took.unit.round))
    assert taken == [("long", 0), ("long", 1), ("long", 2), ("short", 0), ("short", 1), ("short", 2)]
    assert work.take("short") is None


def test_more_gpus_take_less_time_and_what_is_there_takes_none() -> None:
    units = [*LONG, *SHORT, Unit("done", 0, ())]
    assert expected_seconds(units, seconds, 1) == 3 * 140 + 2 * START_SECONDS
    assert expected_seconds(units, seconds, 2) == 100 + 3 * 40 + 2 * START_SECONDS
    assert expected_seconds(units, seconds, 8) == 100 + START_SECONDS
    assert expected_seconds([], seconds, 2) == 0.0
