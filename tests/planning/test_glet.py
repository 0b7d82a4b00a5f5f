"""glet and its baselines: what any plan must keep, on made-up services."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.planning.serving.cases import Decide, Limits, Measured, Model, Service
from orion.planning.serving.glet.float32 import single
from orion.planning.serving.glet.schedule import raised
from orion.planning.serving.glet.times import Times
from orion.planning.serving.interference import RTX_2080_TI, Utilisation, alpha
from orion.planning.serving.latency import Latency
from orion.planning.serving.planners import PLANNERS

SHARES, BATCHES = (20, 40, 50, 60, 80, 100), (1, 2, 4, 8, 16, 32)
NAMES = ("glet", "greedy", "temporal", "full-search")


def model(number: int) -> Model:
    points = {share: {batch: (3.0 + number) * (0.6 + batch * 20 / share / 4) for batch in BATCHES} for share in SHARES}
    used = Utilisation({batch: (0.1 + batch / 100, 0.2 + batch / 80) for batch in BATCHES})
    return Model(number, f"model{number}", Latency(points), (0.5,) * 32, 500.0 + 400 * number, used)


MEASURED = Measured({number: model(number) for number in range(5)}, 9900.0, 1230.0, constants=RTX_2080_TI)


@cache
def planner(name: str, gpus: int) -> Decide:
    return PLANNERS[name](MEASURED, Limits(gpus))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Service, ...]:
    numbers = draw(st.lists(st.integers(0, 4), unique=True, max_size=5))
    rates = st.one_of(st.integers(0, 40), st.integers(0, 1500), st.floats(0, 300))
    return tuple(Service(number, draw(rates), draw(st.integers(1, 900))) for number in numbers)


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from(NAMES), st.integers(1, 3))
def test_no_plan_gives_out_more_than_there_is(case: tuple[Service, ...], name: str, gpus: int) -> None:
    plan = planner(name, gpus)(case)
    for gpu in {part.gpu for part in plan.parts}:
        parts = [part for part in plan.parts if part.gpu == gpu]
        assert gpu < gpus
        assert sum(part.share for part in parts) <= 100
        assert len({(part.share, part.copy) for part in parts}) == len(parts) <= 2
        assert sum(MEASURED.models[int(each.service)].memory_mb for part in parts for each in part.services) < 9900
    assert plan.is_schedulable or (plan.reason and not plan.parts)


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(NAMES))
def test_a_case_is_decided_the_same_way_again_and_in_any_order(case: tuple[Service, ...], name: str) -> None:
    first = planner(name, 2)(case)
    assert PLANNERS[name](MEASURED, Limits(2))(tuple(reversed(case))) == first


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(("greedy", "temporal")))
def test_the_raised_rate_of_a_schedulable_case_is_placed(case: tuple[Service, ...], name: str) -> None:
    plan = planner(name, 3)(case)
    if not plan.is_schedulable:
        return
    for service in case:
        given_rate = sum(e.throughput for part in plan.parts for e in part.services if e.service == str(service.model))
        assert given_rate + 16 >= service.rate


@pytest.mark.parametrize(("rate", "expected"), [(20, 32), (100, 125), (200, 235), (551, 606), (8, 16)])
def test_rates_are_raised_to_what_poisson_arrivals_need(rate: int, expected: int) -> None:
    assert raised(rate) == expected


def test_small_rates_end_and_are_ignored() -> None:
    assert all(raised(rate) <= 15 for rate in range(1, 8))


def test_a_service_without_requests_takes_no_place() -> None:
    plan = planner("glet", 1)((Service(0, 0.0, 100.0),))
    assert plan.is_schedulable
    assert plan.parts == ()


def test_an_objective_below_the_time_of_one_request_is_named() -> None:
    plan = planner("glet", 2)((Service(3, 50.0, 2.0),))
    assert not plan.is_schedulable
    assert "nothing holds its objective of 2 ms" in plan.reason


def test_a_model_larger_than_a_gpu_is_named() -> None:
    small = Measured(MEASURED.models, 1500.0, 1230.0)
    plan = PLANNERS["greedy"](small, Limits(2))((Service(0, 50.0, 200.0),))
    assert not plan.is_schedulable
    assert "needs 1730 MB with its part, and a GPU has 1500 MB" in plan.reason


def test_a_batch_that_was_not_measured_lies_between_the_smallest_and_the_largest_share() -> None:
    times = Times(MEASURED, SHARES, has_interference=False)
    points = MEASURED.models[0].latency
    a, c = points.ms(12, 20), points.ms(12, 100)
    r = (points.ms(32, 50) - points.ms(32, 100)) / (points.ms(32, 20) - points.ms(32, 100))
    assert times.alone[0, 50][12] == pytest.approx(1.1 * ((a - c) * r + c + 0.5), rel=1e-6)
    assert times.alone[0, 50][12] == single(times.alone[0, 50][12])


def test_the_neighbour_that_slows_most_counts_and_none_makes_faster() -> None:
    mine, light, heavy = (0, 4, 40), (1, 1, 60), (2, 32, 60)
    found = MEASURED.slowdown(mine, [light, heavy])
    use = [MEASURED.models[number].utilisation for number in (0, 2)]
    assert use[0] is not None
    assert use[1] is not None
    assert found == alpha(RTX_2080_TI, use[0].at(4, 40), use[1].at(32, 60))
    assert found > 1
    assert MEASURED.slowdown(mine, []) == 1


def test_utilisation_is_linear_between_powers_of_two() -> None:
    used = MEASURED.models[0].utilisation
    assert used is not None
    assert used.at(6, 50)[0] == pytest.approx((0.14 + 0.18) / 2 / 2)
    assert used.at(32, 100)[0] == pytest.approx(0.42)
