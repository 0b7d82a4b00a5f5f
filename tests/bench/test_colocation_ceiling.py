"""The queueing model: properties that hold for all arrivals, service times and speeds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.bench.colocation.ceiling import Outcomes, Speeds, fraction, front, limits_for, outcomes

GAPS = st.lists(st.floats(0.0, 3.0), min_size=1, max_size=40)
SERVICES = st.lists(st.floats(0.01, 3.0), min_size=40, max_size=40)
SPEED = st.floats(0.1, 1.0)
RELAXED = settings(deadline=None)
LIMITS = [0.0, 0.05, 0.5, 2.0, 10.0, float("inf")]


def modelled(gaps: list[float], services: list[float], speeds: Speeds) -> Outcomes:
    return outcomes(np.cumsum(gaps), np.asarray(services[: len(gaps)]), speeds, LIMITS)


def plain_queue(gaps: list[float], services: list[float], speed: float) -> list[float]:
    """Return latencies of a first-come first-served server with a constant speed, by Lindley's recursion."""
    latencies, wait = [], 0.0
    for number, gap in enumerate(gaps):
        wait = max(0.0, wait - gap) if number else 0.0
        wait += services[number] / speed
        latencies.append(wait)
    return latencies


@RELAXED
@given(GAPS, SERVICES, SPEED, SPEED, SPEED)
def test_hps_throughput_equals_its_requests(
    gaps: list[float], services: list[float], alone: float, part: float, be: float
) -> None:
    result = modelled(gaps, services, Speeds(alone, alone * part, be))
    end = np.cumsum(gaps)[-1] + result.latencies[:, -1]
    assert result.hp * end == pytest.approx(np.full(len(LIMITS), sum(services[: len(gaps)])))


@RELAXED
@given(GAPS, SERVICES, SPEED, SPEED, SPEED)
def test_be_gets_hps_idle_time_and_its_part_of_the_overlap(
    gaps: list[float], services: list[float], alone: float, part: float, be: float
) -> None:
    result = modelled(gaps, services, Speeds(alone, alone * part, be))
    end = np.cumsum(gaps)[-1] + result.latencies[:, -1]
    gate = 1 - sum(services[: len(gaps)]) / alone / end[0]
    assert result.be[0] == pytest.approx(gate, abs=1e-9)
    endless = 1 - (1 - be) * sum(services[: len(gaps)]) / (alone * part) / end[-1]
    assert result.be[-1] == pytest.approx(endless, abs=1e-9)
    assert (result.be <= 1 + 1e-9).all()


@RELAXED
@given(GAPS, SERVICES, SPEED, SPEED, SPEED)
def test_without_overlap_the_model_is_a_gate(
    gaps: list[float], services: list[float], alone: float, part: float, be: float
) -> None:
    result = modelled(gaps, services, Speeds(alone, alone * part, be))
    assert result.latencies[0] == pytest.approx(plain_queue(gaps, services, alone))


@RELAXED
@given(GAPS, SERVICES, SPEED, SPEED)
def test_overlap_without_end_is_a_slower_server(
    gaps: list[float], services: list[float], alone: float, part: float
) -> None:
    result = modelled(gaps, services, Speeds(alone, alone * part, 0.5))
    assert result.latencies[-1] == pytest.approx(plain_queue(gaps, services, alone * part))


@RELAXED
@given(GAPS, SERVICES)
def test_overlap_without_slowdown_gives_the_latencies_of_alone(gaps: list[float], services: list[float]) -> None:
    result = modelled(gaps, services, Speeds(1.0, 1.0, 0.5))
    for latencies in result.latencies:
        assert latencies == pytest.approx(plain_queue(gaps, services, 1.0))


@RELAXED
@given(GAPS, SERVICES, SPEED, SPEED)
def test_every_limit_is_between_a_gate_and_overlap_without_end(
    gaps: list[float], services: list[float], alone: float, part: float
) -> None:
    result = modelled(gaps, services, Speeds(alone, alone * part, 0.5))
    assert (result.latencies >= result.latencies[0] - 1e-9).all()
    assert (result.latencies <= result.latencies[-1] + 1e-9).all()


@RELAXED
@given(SERVICES, SPEED, SPEED, SPEED)
def test_in_one_busy_period_shorter_or_faster_overlap_makes_every_request_faster(
    services: list[float], alone: float, one: float, other: float
) -> None:
    slow, fast = sorted((alone * one, alone * other))
    at_once = [0.0] * len(services)
    slower = modelled(at_once, services, Speeds(alone, slow, 0.5))
    faster = modelled(at_once, services, Speeds(alone, fast, 0.5))
    assert (faster.latencies <= slower.latencies + 1e-9).all()
    assert (np.diff(slower.latencies, axis=0) >= -1e-9).all()


@RELAXED
@given(GAPS, SERVICES, SPEED, SPEED, SPEED)
def test_overlap_without_end_at_a_higher_speed_makes_every_request_faster(
    gaps: list[float], services: list[float], alone: float, one: float, other: float
) -> None:
    slow, fast = sorted((alone * one, alone * other))
    slower = modelled(gaps, services, Speeds(alone, slow, 0.5))
    faster = modelled(gaps, services, Speeds(alone, fast, 0.5))
    assert (faster.latencies[-1] <= slower.latencies[-1] + 1e-9).all()


def test_longer_overlap_may_make_a_later_request_faster() -> None:
    """With the longer overlap, both requests are in one busy period, and the second request runs without be."""
    short, long = outcomes([0.0, 1.5], 1.0, Speeds(1.0, 0.5, 0.5), [1.0, 1.01]).latencies
    assert short == pytest.approx([1.5, 1.5])
    assert long == pytest.approx([1.505, 1.005])


def test_an_example_that_was_computed_by_hand() -> None:
    """The request at 0 runs at half speed until 1 and ends at 1.5.

    The request at 1.2 ends at 2.5. The request at 9 takes as long as that at 0.
    """
    result = outcomes([0.0, 1.2, 9.0], 1.0, Speeds(1.0, 0.5, 0.25), [1.0], window=(0.0, 12.0))
    assert result.latencies[0] == pytest.approx([1.5, 1.3, 1.5])
    assert result.hp[0] == pytest.approx(3 / 12)
    assert result.be[0] == pytest.approx((12 - 2.5 - 1.5 + 0.25 * 2) / 12)
    assert result.total[0] == pytest.approx(result.hp[0] + result.be[0])


def test_throughput_counts_only_inside_the_window() -> None:
    result = outcomes([0.0, 10.0], 4.0, Speeds(1.0, 0.5, 0.25), [2.0], window=(1.0, 11.0))
    # be runs beside hp from 0 to 2 and from 10 on. From 2 to 5 hp runs alone. The first request needs 1 + 3.
    assert result.hp[0] == pytest.approx((0.5 * 1 + 3 + 0.5 * 1) / 10)
    assert result.be[0] == pytest.approx((5 + 0.25 * 2) / 10)


def test_the_front_drops_points_that_are_worse_on_both_axes() -> None:
    p99, total = front(np.array([1.3, 1.0, 1.2, 2.0]), np.array([1.05, 1.0, 1.1, 1.2]))
    assert p99.tolist() == [1.0, 1.2, 2.0]
    assert total.tolist() == [1.0, 1.1, 1.2]


def test_a_point_is_compared_with_the_ceiling_at_its_own_p99() -> None:
    curve = ([1.0, 2.0], [1.0, 1.2])
    assert fraction(1.5, 1.1, curve) == pytest.approx(1.0)
    assert fraction(5.0, 0.6, curve) == pytest.approx(0.5)
    assert fraction(0.9, 0.95, curve) == pytest.approx(0.95)


def test_limits_range_from_a_gate_to_infinity() -> None:
    limits = limits_for(0.03, 2.0)
    assert limits[0] == 0.0
    assert limits[-2:].tolist() == [pytest.approx(2.0), float("inf")]
    assert (np.diff(limits) > 0).all()


@pytest.mark.parametrize("speeds", [(0.0, 0.5, 0.5), (1.0, 0.0, 0.5), (1.0, 0.5, -0.1)])
def test_speeds_that_are_not_positive_are_rejected(speeds: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        Speeds(*speeds)


def test_a_model_without_requests_or_limits_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one request"):
        outcomes([], 1.0, Speeds(1.0, 1.0, 1.0), [0.0])
