"""Poisson arrivals, and the choice of the picture's window."""

import itertools

import pytest

from orion.bench.arrivals import arrivals_with_lead, picture_window, poisson_arrivals


def test_equal_seeds_give_equal_arrivals() -> None:
    assert poisson_arrivals(80, 5, 3) == poisson_arrivals(80, 5, 3) != poisson_arrivals(80, 5, 4)


def test_arrivals_ascend_inside_the_window_at_the_rate() -> None:
    times = poisson_arrivals(80, 100, 1)
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 100
    assert len(times) == pytest.approx(8000, rel=0.05)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.05)  # an exponential distribution has equal mean and deviation


@pytest.mark.parametrize(("rate", "seconds"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_a_rate_or_length_that_is_not_positive_is_rejected(rate: float, seconds: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        poisson_arrivals(rate, seconds, 1)


def test_the_lead_in_precedes_exactly_the_given_number_of_requests() -> None:
    times, last = arrivals_with_lead(80.0, 1000, 1.0, 5)
    assert sum(1 for time in times if time >= 1.0) == 1000
    assert any(time < 1.0 for time in times)
    assert last == times[-1]


def test_the_window_has_more_requests_than_the_mean() -> None:
    times = poisson_arrivals(85, 7, 1)
    begin, end = picture_window(times, 0.1, after=1.0)
    assert end - begin == pytest.approx(0.1)
    assert begin >= 0.99
    assert sum(1 for time in times if begin <= time < end) >= 9


def test_a_window_without_requests_is_still_a_window() -> None:
    assert picture_window([], 0.1, after=1.0) == (1.0, 1.1)
