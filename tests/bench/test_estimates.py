"""Percentiles, throughput over a window, paired ratios and their intervals."""

import math
import random

import pytest

from orion.bench import estimates, samples


def test_latency_counts_from_the_scheduled_arrival() -> None:
    assert samples.latencies_ms([1.0, 2.0], [1.004, 2.5]) == pytest.approx([4.0, 500.0])


def test_the_percentile_of_no_samples_is_not_a_number() -> None:
    assert math.isnan(samples.percentile([], 99))
    assert samples.percentile([1.0, 2.0, 3.0], 50) == 2.0


@pytest.mark.parametrize(
    ("begin", "end", "steps"),
    [
        pytest.param(1.0, 4.0, 3.0, id="on completions"),
        pytest.param(1.25, 3.75, 2.5, id="parts at both edges"),
        pytest.param(0.0, 9.0, 4.0, id="only completed steps"),
        pytest.param(2.25, 2.75, 0.5, id="inside one step"),
    ],
)
def test_steps_at_the_edges_count_by_their_part_inside(begin: float, end: float, steps: float) -> None:
    assert samples.completed_between([1.0, 2.0, 3.0, 4.0, 5.0], begin, end) == pytest.approx(steps)


def test_without_a_completed_step_throughput_is_zero() -> None:
    assert samples.completed_between([], 0.0, 1.0) == 0.0
    assert samples.completed_between([0.5], 0.0, 1.0) == 0.0


def test_bins_add_up_to_the_window() -> None:
    ends = [0.1 * number for number in range(101)]
    rates = samples.binned_rates(ends, 1.0, 9.0, 16)
    assert rates == pytest.approx([10.0] * 16)


def _latencies(seed: int, factor: float) -> list[float]:
    draw = random.Random(seed)
    return [factor * (4.0 + draw.expovariate(0.5)) for _ in range(1000)]


def test_a_constant_slowdown_has_no_spread_because_requests_are_paired() -> None:
    pairs = [(_latencies(seed, 1.1), _latencies(seed, 1.0)) for seed in range(3)]
    [ratio] = estimates.paired_percentile_ratios(pairs, [99], resamples=100)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.1, 1.1, 1.1))


def test_unpaired_noise_widens_the_interval_around_the_median_of_rounds() -> None:
    pairs = [(_latencies(seed + 100, 1.0), _latencies(seed, 1.0)) for seed in range(3)]
    [ratio] = estimates.paired_percentile_ratios(pairs, [99], resamples=300)
    assert ratio.low < ratio.value < ratio.high
    assert ratio.value == sorted(ratio.rounds)[1]
    assert ratio.low < 1.0 < ratio.high


def test_equal_seeds_give_equal_intervals() -> None:
    pairs = [(_latencies(7, 1.0), _latencies(8, 1.0))]
    first = estimates.paired_percentile_ratios(pairs, [95], resamples=50)
    assert first == estimates.paired_percentile_ratios(pairs, [95], resamples=50)


def test_both_systems_of_a_round_must_have_the_same_requests() -> None:
    with pytest.raises(ValueError, match="same requests"):
        estimates.paired_percentile_ratios([([1.0], [1.0, 2.0])], [50])


def test_a_reference_with_few_steps_has_a_finite_interval() -> None:
    ratio = estimates.paired_rate_ratio([([4.0, 3.0, 5.0], [0.0, 0.0, 0.0, 8.0])], resamples=200)
    assert ratio.value == pytest.approx(2.0)
    assert 0 < ratio.low <= ratio.high < math.inf


def test_rates_may_come_from_windows_of_different_length() -> None:
    ratio = estimates.paired_rate_ratio([([60.0] * 20, [100.0] * 8), ([62.0] * 20, [100.0] * 8)], resamples=100)
    assert ratio.value == pytest.approx(0.61)
    assert (ratio.low, ratio.high) == pytest.approx((0.60, 0.62))


def test_a_comparison_without_rounds_is_an_error() -> None:
    with pytest.raises(ValueError, match="no round"):
        estimates.paired_rate_ratio([])
