"""Waits of requests at one server, against the exact formula of M/D/1 and against a simulation."""

import math

import numpy as np
import pytest

from orion.planning.fleet import waiting


def _erlang(load: float, wait: float) -> float:
    """Return P(wait > t) of M/D/1 with service time 1: Erlang's series, which is exact for short waits."""
    terms = [math.exp(load * (wait - k)) * (-load * (wait - k)) ** k / math.factorial(k) for k in range(int(wait) + 1)]
    return 1 - (1 - load) * math.fsum(terms)


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("wait", [0.5, 1.7, 4.0, 9.3])
def test_one_service_waits_as_erlang_says(load: float, wait: float) -> None:
    found = waiting.waits_longer([(load / 0.02, 0.02)], [wait * 0.02])[0]
    assert found == pytest.approx(_erlang(load, wait), rel=0.01, abs=2e-5)


def test_two_services_wait_as_in_a_simulation() -> None:
    loads, random = [(30.0, 0.004), (8.0, 0.06)], np.random.default_rng(3)
    arrivals = [np.cumsum(random.exponential(1 / rate, int(rate * 20_000))) for rate, _ in loads]
    order = np.argsort(np.concatenate(arrivals))
    times = np.concatenate([np.full(len(each), time) for each, (_, time) in zip(arrivals, loads, strict=True)])[order]
    steps = times[:-1] - np.diff(np.concatenate(arrivals)[order])
    walked = np.concatenate([[0.0], np.cumsum(steps)])
    waits = walked - np.minimum.accumulate(walked)
    assert waiting.waits_longer(loads, [float(np.quantile(waits, 0.99))]) == pytest.approx([0.01], rel=0.1)


def test_the_highest_rate_holds_the_objective_and_a_higher_one_does_not() -> None:
    rate = waiting.highest_rate(0.01, 0.05, 0.0003)
    assert waiting.holds([(rate, 0.01)], [0.05], 0.0003)
    assert not waiting.holds([(rate * 1.001, 0.01)], [0.05], 0.0003)
    assert waiting.highest_rate(0.01, 0.0099) == 0


def test_no_rate_loads_a_gpu_more_than_it_can_serve() -> None:
    assert waiting.highest_rate(0.01, 100.0) == pytest.approx(99.5)
    assert waiting.waits_longer([(120.0, 0.01)], [1.0]) == [1.0]


@pytest.mark.parametrize("left_s", [1e-17, 1e-9, 1e-6])
def test_an_objective_of_hardly_more_than_the_service_time_needs_no_large_grid(left_s: float) -> None:
    """Only a request that finds the server idle holds it. 0.0713 - 0.0003 - 0.071 is 1e-17 in floating point."""
    assert waiting.waits_longer([(5.0, 0.071)], [left_s])[0] == pytest.approx(5 * 0.071, rel=1e-4)
    assert waiting.highest_rate(0.071, 0.071 + left_s) == pytest.approx(0.01 / 0.071, rel=1e-3)
