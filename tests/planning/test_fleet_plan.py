"""The plan of a fleet: it adds up at each moment, and it has as many GPUs as a hand calculation says."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.planning.fleet.fleets import Batch, Fleet, Placement, Service, Training
from orion.planning.fleet.plan import FleetPlan, plan

HOURS = 24.0
FLEET = Fleet(80.0, None, HOURS, 0.0003, 1, (), (), ())


def service(name: str, *rates: tuple[float, float], objective_s: float = 0.1, memory_gb: float = 20.0) -> Service:
    return Service(name, 0.01, rates, objective_s, memory_gb)


def training(count: int, gpus: int, work_gpu_h: float, by_h: float = HOURS, memory_gb: float = 30.0) -> Training:
    return Training("tune", count, gpus, work_gpu_h, memory_gb, by_h)


def at(found: FleetPlan, begin_h: float, end_h: float) -> list[Placement]:
    return [each for each in found.placements if each.from_h <= begin_h and each.to_h >= end_h]


def check_sums(asked: Fleet, found: FleetPlan) -> None:
    """Add up GPU time, memory and rates in every span in which nothing changes, and the work of every job."""
    services = {each.name: each for each in asked.services}
    for begin_h, end_h in pairwise(sorted({h for each in found.placements for h in (each.from_h, each.to_h)})):
        here = at(found, begin_h, end_h)
        assert all(0 <= each.gpu < found.gpus for each in here)
        for gpu in {each.gpu for each in here}:
            mine = [each for each in here if each.gpu == gpu]
            hp = [each for each in mine if each.role == "hp"]
            be = [each for each in mine if each.role == "be"]
            busy = sum(each.rate * services[each.workload].service_s for each in hp)
            lost = sum(each.rate for each in hp) * (1 - busy) * asked.switch_s if be else 0.0
            work = sum(each.work_gpu_h / (each.to_h - each.from_h) for each in be)
            assert busy + lost + work <= 1 + 1e-6
            assert sum(each.memory_gb for each in mine) <= asked.memory_gb + 1e-6
            assert len(be) <= 1
            assert len(hp) <= asked.hp_per_gpu
            assert len({each.workload for each in hp}) == len(hp)
        for each in found.fleet.services:
            assert sum(one.rate for one in here if one.workload == each.name) == pytest.approx(each.rate(begin_h))
    check_work(found)


def check_work(found: FleetPlan) -> None:
    hours = found.fleet.hours
    jobs: list[tuple[str, int, float, float, float, int | None]] = [
        (each.name, 0, each.work_gpu_h, each.from_h, each.to_h, None) for each in found.fleet.batches
    ]
    jobs += [(each.name, copy, each.work_gpu_h, 0.0, each.by_h, each.gpus)
             for each in found.fleet.training for copy in range(each.count)]  # fmt: skip
    ends = {(each.name, each.copy): each.end_h for each in found.ends}
    for name, copy, work, from_h, to_h, gpus in jobs:
        mine = [each for each in found.placements if (each.workload, each.copy) == (name, copy)]
        if ends[name, copy] is None:
            assert not mine
            assert name in {each.name for each in found.unplaced}
            continue
        assert sum(each.work_gpu_h for each in mine) == pytest.approx(work, rel=1e-6, abs=1e-6)
        assert all(0 <= each.from_h < each.to_h <= hours + 1e-6 for each in mine)
        later = [hours if each.to_h <= to_h - hours + 1e-6 else 0.0 for each in mine]  # after midnight
        times = [(each.from_h + more, each.to_h + more) for each, more in zip(mine, later, strict=True)]
        assert all(from_h - 1e-6 <= begin_h < end_h <= to_h + 1e-6 for begin_h, end_h in times)
        assert max((end_h for _, end_h in times), default=from_h) == pytest.approx(ends[name, copy])
        for begin_h, end_h in pairwise(sorted({h for each in mine for h in (each.from_h, each.to_h)})):
            held = {each.gpu for each in mine if each.from_h <= begin_h and each.to_h >= end_h}
            assert gpus is None or len(held) in (0, gpus)


SERVICES = st.lists(
    st.builds(
        lambda first, second, hour, service_s, slack, memory: Service(
            "s", service_s, ((0.0, first / service_s), (hour, second / service_s)), service_s * slack, memory
        ),
        st.floats(0, 3), st.floats(0, 3), st.sampled_from([3.0, 8.5, 20.0]), st.sampled_from([0.002, 0.01, 0.05]),
        st.floats(1.5, 20), st.sampled_from([10.0, 30.0, 50.0]),
    ),
    max_size=3,
)  # fmt: skip
BATCHES = st.lists(
    st.builds(
        lambda work, begin, length, memory: Batch("b", work, begin, begin + length, memory),
        st.floats(0, 20), st.sampled_from([0.0, 2.5, 12.0, 22.0]), st.sampled_from([1.0, 4.0, 11.5]),
        st.sampled_from([5.0, 40.0]),
    ),
    max_size=3,
)  # fmt: skip
TRAINING = st.lists(
    st.builds(
        lambda count, gpus, work, memory, by: Training("t", count, gpus, work, memory, by),
        st.integers(0, 4), st.sampled_from([1, 1, 2, 3, 4]), st.floats(0, 30), st.sampled_from([10.0, 40.0, 75.0]),
        st.sampled_from([6.0, 13.0, 24.0]),
    ),
    max_size=3,
)  # fmt: skip
FLEETS = st.builds(
    lambda services, batches, jobs, per_gpu, most: Fleet(
        80.0, most, HOURS, 0.0003, per_gpu,
        tuple(replace(each, name=f"s{at}") for at, each in enumerate(services)),
        tuple(replace(each, name=f"b{at}") for at, each in enumerate(batches)),
        tuple(replace(each, name=f"t{at}") for at, each in enumerate(jobs)),
    ),
    SERVICES, BATCHES, TRAINING, st.sampled_from([1, 2, 3]), st.sampled_from([None, None, 2, 8]),
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(FLEETS)
def test_every_plan_adds_up(asked: Fleet) -> None:
    found = plan(asked)
    check_sums(asked, found)
    assert found.gpus <= (asked.at_most or found.gpus)
    names = [each.name for each in asked.services] + [each.name for each in asked.batches]
    names += [each.name for each in asked.training]
    assert {each.name for each in found.unplaced} <= set(names)
    if asked.at_most is None:
        assert found.bound <= found.gpus
        assert found == plan(asked)


@settings(max_examples=10, deadline=None)
@given(FLEETS)
def test_a_plan_for_early_ends_adds_up(asked: Fleet) -> None:
    asked = replace(asked, at_most=asked.at_most or 12)
    found = plan(asked, is_finish=True)
    assert found.gpus == asked.at_most
    check_sums(asked, found)


@settings(max_examples=10, deadline=None)
@given(FLEETS, st.integers(1, 6))
def test_more_gpus_never_leave_more_services_out(asked: Fleet, most: int) -> None:
    few, many = (plan(replace(asked, at_most=gpus)) for gpus in (most, most + 2))
    services = {each.name for each in asked.services}
    out = [services & {each.name for each in found.unplaced} for found in (few, many)]
    assert len(out[1]) <= len(out[0])


def test_a_service_gets_the_gpus_of_the_queueing_formula() -> None:
    # M/D/1 at load 0.8: 99 % of the requests wait at most 10.36 service times, so 11.4 in all (Erlang's tables).
    asked = replace(FLEET, services=(service("a", (0.0, 800.0), objective_s=0.1136),))
    assert plan(asked).gpus == 10


def test_services_share_gpus_up_to_the_limit() -> None:
    four = tuple(service(name, (0.0, 10.0)) for name in "abcd")
    assert plan(replace(FLEET, services=four)).gpus == 4
    assert plan(replace(FLEET, services=four, hp_per_gpu=2)).gpus == 2
    assert plan(replace(FLEET, services=four, hp_per_gpu=4)).gpus == 1


def test_services_at_different_hours_take_turns_on_gpus() -> None:
    day = service("day", (0.0, 0.0), (8.0, 400.0), (20.0, 0.0))
    night = service("night", (0.0, 400.0), (8.0, 0.0), (20.0, 400.0))
    found = plan(replace(FLEET, services=(day, night)))
    assert found.separate == {"day": 6, "night": 6}
    assert (found.gpus, found.layout) == (6, "hourly")


def test_jobs_run_beneath_a_service_at_the_speed_of_the_formula() -> None:
    speed = 1 - 0.5 - 50 * 0.5 * 0.0003
    asked = replace(FLEET, services=(service("a", (0.0, 50.0)),), training=(training(1, 1, 24 * speed - 0.001),))
    found = plan(asked)
    assert (found.gpus, found.separate) == (1, {"a": 1, "tune": 1})
    assert {each.way for each in found.placements if each.role == "be"} == {"beneath"}
    assert plan(replace(asked, training=(training(1, 1, 24 * speed + 0.01),))).gpus == 2


@pytest.mark.parametrize(
    ("count", "gpus", "work", "by", "expected"),
    [(4, 1, 24, 24, 4), (4, 1, 12, 24, 2), (10, 1, 13, 24, 6), (3, 4, 40, 24, 8), (1, 8, 64, 8, 8), (0, 1, 5, 24, 0)],
)
def test_training_alone_needs_work_over_time(count: int, gpus: int, work: float, by: float, expected: int) -> None:
    found = plan(replace(FLEET, training=(training(count, gpus, work, by),)))
    assert found.gpus == found.separate["tune"] == expected


def test_a_window_over_midnight_has_both_ends_of_the_day() -> None:
    found = plan(replace(FLEET, services=(), batches=(Batch("night", 16.0, 22.0, 30.0, 10.0),)))
    assert (found.gpus, found.bound, sum(found.separate.values())) == (2, 2, 2)
    assert [each.end_h for each in found.ends] == [pytest.approx(30.0)]
    assert {(each.from_h, each.to_h) for each in found.placements} == {(0.0, 6.0), (22.0, 24.0)}
    night = (Batch("night", 9.0, 22.0, 30.0, 10.0),)
    early = plan(replace(FLEET, services=(), at_most=3, batches=night), is_finish=True)
    assert [each.end_h for each in early.ends] == [pytest.approx(25.0)]
    check_sums(FLEET, early)


def test_a_batch_that_does_not_fit_over_midnight_says_in_which_hours() -> None:
    night = (Batch("night", 16.0, 22.0, 30.0, 10.0),)
    (left,) = plan(replace(FLEET, services=(), at_most=1, batches=night)).unplaced
    assert left.reason == (
        "it finds no free time for 16 GPU-hours between 22 h and 6 h of the next day on 1 GPUs: set gpus.atMost to 2"
    )


def test_a_batch_runs_only_in_its_window() -> None:
    found = plan(replace(FLEET, batches=(Batch("night", 20.0, 1.0, 6.0, 10.0),)))
    assert found.gpus == found.separate["night"] == 4


def test_memory_keeps_work_apart() -> None:
    asked = replace(FLEET, services=(service("a", (0.0, 10.0), memory_gb=60.0),), training=(training(1, 1, 5.0),))
    assert plan(asked).gpus == 2
    assert plan(replace(asked, training=(training(1, 1, 5.0, memory_gb=20.0),))).gpus == 1


def test_a_job_of_several_gpus_runs_as_fast_as_on_the_slowest() -> None:
    asked = replace(FLEET, at_most=2, services=(service("a", (0.0, 50.0)),), training=(training(1, 2, 20.0),))
    found = plan(asked, is_finish=True)
    assert found.ends[0].end_h == pytest.approx(10 / (1 - 0.5 - 50 * 0.5 * 0.0003))


def test_what_does_not_fit_says_why_and_what_would_help() -> None:
    asked = replace(
        FLEET,
        at_most=2,
        services=(service("fast", (0.0, 10.0), objective_s=0.005), service("a", (0.0, 50.0), objective_s=0.2)),
        batches=(Batch("large", 3.0, 0.0, 6.0, 200.0),),
        training=(training(3, 1, 20.0), Training("slow", 1, 2, 60.0, 10.0, 24.0)),
    )
    reasons = {each.name: each.reason for each in plan(asked).unplaced}
    assert "the best objective is 10 ms" in reasons["fast"]
    assert "a GPU has 80 GB" in reasons["large"]
    assert "set by to 30 or later, or gpus to 3 or more" in reasons["slow"]
    assert "2 of 3 jobs" in reasons["tune"]
    assert "set gpus.atMost to 3" in reasons["tune"] or "set gpus.atMost to 4" in reasons["tune"]


def test_the_change_that_would_help_helps() -> None:
    asked = replace(FLEET, at_most=1, training=(training(2, 1, 14.0),))
    found = plan(asked)
    assert "set gpus.atMost to 2, or the end of by from 24 to 28" in found.unplaced[0].reason
    assert not plan(replace(asked, at_most=2)).unplaced


def test_an_empty_fleet_needs_no_gpus() -> None:
    found = plan(FLEET)
    assert (found.gpus, found.separate, found.placements, found.unplaced) == (0, {}, (), ())


def test_a_service_that_tolerates_no_switch_runs_without_work_beneath() -> None:
    tight = service("tight", (0.0, 50.0), objective_s=0.0101, memory_gb=1.0)
    found = plan(replace(FLEET, services=(tight,), training=(training(1, 1, 6.0),)))
    assert not found.unplaced
    assert {each.way for each in found.placements if each.role == "be"} == {"exclusive"}
    assert found.gpus == found.separate["tight"] + found.separate["tune"]


def test_sharing_never_takes_more_gpus_than_gpus_apart() -> None:
    tight = service("tight", (0.0, 500.0), objective_s=0.012, memory_gb=1.0)
    found = plan(replace(FLEET, services=(tight,), training=(training(1, 1, 6.0),)))
    assert not found.unplaced
    assert found.gpus <= sum(found.separate.values())


@pytest.mark.parametrize("jobs", [40, 70, 100])
def test_a_large_fleet_has_no_gpu_more_than_it_needs(jobs: int) -> None:
    """Memory keeps the jobs off the services' GPUs, so the search goes far beyond its bound, in large steps."""
    large = service("large", (0.0, 3000.0), memory_gb=60.0)
    found = plan(replace(FLEET, switch_s=0.0, services=(large,), training=(training(jobs, 1, HOURS),)))
    assert not found.unplaced
    assert found.gpus == found.needed == found.separate["large"] + jobs


def test_the_order_of_workloads_decides_nothing() -> None:
    services = tuple(
        replace(service(name, (0.0, rate), (8.0, 60.0), memory_gb=memory), service_s=time_s)
        for name, rate, memory, time_s in (("a", 90.0, 40.0, 0.01), ("b", 30.0, 20.0, 0.02), ("c", 0.0, 30.0, 0.03))
    )
    batches = (Batch("d", 3.0, 0.0, 6.0, 30.0), Batch("e", 3.0, 0.0, 6.0, 30.0))
    asked = replace(FLEET, hp_per_gpu=2, services=services, batches=batches, training=(training(3, 2, 20.0),))
    turned = replace(asked, services=services[::-1], batches=batches[::-1])
    one, other = plan(asked), plan(turned)
    assert one.placements == other.placements
    assert [each.name for each in one.fleet.services] == ["a", "b", "c"]
    assert [each.name for each in other.fleet.services] == ["c", "b", "a"]
