"""The model of a shared GPU: hp and be behind a gate, and the clock under the power limit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.simulation.gpu.clock import Clock
from orion.simulation.gpu.gate import BestEffort, HighPriority, Prediction, predict, predict_stalls
from orion.simulation.gpu.h200 import H200

SMALL_KERNELS = BestEffort(throttled=1.0, power_w=400.0, rest_ms=((0.0, 0.0), (1.0, 0.0)))
SWITCHES_MS = H200.to_hp_ms.value + H200.to_be_ms.value + H200.linger_ms.value


def hp(arrivals_ms: list[float], service_ms: float = 4.0) -> HighPriority:
    """Return an hp whose requests, alone, take equal times."""
    arrivals, free, starts = np.asarray(arrivals_ms, dtype=float), 0.0, []
    for arrival in arrivals:
        starts.append(max(arrival, free))
        free = starts[-1] + service_ms
    begins = np.asarray(starts)
    return HighPriority(arrivals, begins, begins + service_ms, 300.0, 1.0)


def test_a_head_waits_for_a_switch_and_be_loses_two_switches_and_the_linger() -> None:
    found = predict(hp([100.0, 200.0, 300.0]), SMALL_KERNELS, H200, (50.0, 350.0))
    assert found.latencies_ms == pytest.approx([4.0 + H200.to_hp_ms.value] * 3)
    assert found.be == pytest.approx(1 - 3 * (4.0 + SWITCHES_MS) / 300, abs=1e-9)


def test_a_queued_request_does_not_wait_for_be() -> None:
    found = predict(hp([100.0, 101.0]), SMALL_KERNELS, H200, (0.0, 200.0))
    first = 4.0 + H200.to_hp_ms.value
    assert found.latencies_ms == pytest.approx([first, first + 4.0 - 1.0])


def test_a_head_waits_for_the_rest_of_a_kernel_while_be_works() -> None:
    kernels = BestEffort(throttled=1.0, power_w=400.0, kernel_ms=1.6)
    found = predict(hp([100.0]), kernels, H200, (0.0, 101.0))
    rest = 1.6 - 100.0 % 1.6
    assert found.latencies_ms[0] == pytest.approx(4.0 + rest + H200.to_hp_ms.value, abs=1e-6)
    assert found.be == pytest.approx((100.0 + rest) / 101.0, abs=1e-6)


def test_several_be_clients_lose_the_switches_between_their_slices() -> None:
    one = BestEffort(throttled=1.0, power_w=400.0, kernel_ms=0.2)
    four = BestEffort(throttled=1.0, power_w=400.0, kernel_ms=0.2, clients=4)
    ratio = predict(hp([1000.0]), four, H200, (0.0, 1000.0)).be / predict(hp([1000.0]), one, H200, (0.0, 1000.0)).be
    turn = H200.slice_ms.value + H200.slice_switch_ms.value
    assert ratio == pytest.approx(H200.slice_ms.value / turn)


def test_hp_alternates_slices_with_a_long_kernel_that_ends_by_time() -> None:
    kernels = BestEffort(throttled=1.0, power_w=300.0, kernel_ms=50.0, ends_by_time=True)
    found = predict(hp([110.0], service_ms=10.0), kernels, H200, (0.0, 150.0))
    assert 10.0 + 8.0 < found.latencies_ms[0] < 10.0 + 15.0
    assert found.be == pytest.approx(1.0)


def test_a_trainer_leaves_its_input_stall_to_be() -> None:
    found = predict_stalls(np.full(50, 80.0), 24.0, SMALL_KERNELS, H200)
    assert found.be == pytest.approx((24.0 - 0.211) / 80.14, rel=1e-3)
    assert found.latencies_ms == pytest.approx(np.full(50, 80.14))


def test_be_that_waits_for_input_loses_less_than_be_that_always_computes() -> None:
    busy = hp([20.0 * number for number in range(1, 100)], service_ms=10.0)
    waiting = BestEffort(throttled=1.0, power_w=400.0, rest_ms=((0.0, 0.0), (1.0, 0.0)), idle=0.3)
    always, found = (predict(busy, be, H200, (0.0, 2000.0)).be for be in (SMALL_KERNELS, waiting))
    assert found == pytest.approx(1 / (0.7 / always + 0.3))


def test_long_products_slow_the_clock_and_a_pause_brings_it_back() -> None:
    clock = Clock(H200.power)
    assert clock.run(10, 1.4) == pytest.approx(10, rel=0.005)
    clock.run(1000, 1.4)
    throttled = clock.speed
    assert 0.8 < throttled < 0.9
    assert throttled**H200.power.exponent.value * 1.4 == pytest.approx(1.0, abs=0.01)
    clock.rest(30)
    assert throttled < clock.speed < 1
    clock.rest(100)
    assert clock.speed == 1


def test_be_that_pauses_for_hp_is_faster_than_alone_and_hp_is_slower_after_it() -> None:
    products = BestEffort(throttled=1.18, power_w=700 * 1.18**2.2, kernel_ms=1.42)
    busy = hp([30.0 * number for number in range(1, 200)], service_ms=10.0)
    found = predict(busy, products, H200, (500.0, 5500.0))
    assert found.be > (1 - (10 + SWITCHES_MS) / 30) * 1.02
    assert float(np.median(found.latencies_ms)) > 10 + 0.14 + 0.71 + 0.1


@given(
    gaps=st.lists(st.floats(0, 50), min_size=1, max_size=40), service=st.floats(0.1, 20),
    kernel=st.none() | st.floats(0.01, 80), throttled=st.floats(1, 1.4), clients=st.integers(1, 8),
)  # fmt: skip
def test_be_never_gets_more_than_the_gpu_and_no_request_is_faster_than_alone(
    gaps: list[float], service: float, kernel: float | None, throttled: float, clients: int
) -> None:
    be = BestEffort(throttled, 700 * throttled**2.2, kernel, H200.rest_otherwise_ms, True, clients)
    alone = hp(np.cumsum(gaps).tolist(), service)
    found = predict(alone, be, H200, (0.0, float(alone.ends_ms[-1])))
    assert isinstance(found, Prediction)
    assert 0 <= found.be <= throttled * (1 + 1e-9)
    assert (found.latencies_ms >= alone.ends_ms - alone.arrivals_ms - 1e-6).all()
    again = predict(alone, be, H200, (0.0, float(alone.ends_ms[-1])))
    assert again.be == found.be
    assert again.latencies_ms.tolist() == found.latencies_ms.tolist()


def test_a_year_without_requests_takes_no_time() -> None:
    found = predict(hp([1.0, 3e10]), SMALL_KERNELS, H200, (0.0, 3e10))
    assert found.be == pytest.approx(1.0, abs=1e-6)


def test_every_constant_names_its_source() -> None:
    figures = [*vars(H200).values(), *vars(H200.power).values()]
    sources = [figure.source for figure in figures if hasattr(figure, "source")]
    assert len(sources) == 12
    assert all("docs/results/" in source for source in [*sources, H200.work_source])


@pytest.mark.parametrize(("batch", "power_w"), [(64, 551.0), (48, 551.0), (8, 231.0), (1, 231.0), (None, 551.0)])
def test_a_workload_takes_the_constants_of_the_nearest_batch(batch: int | None, power_w: float) -> None:
    work = H200.work_of("resnet50-inference", {} if batch is None else {"batch": batch})
    assert work is not None
    assert work.power_w == power_w


def test_an_unknown_workload_has_no_constants_of_its_own() -> None:
    assert H200.work_of("a-model-of-tomorrow", {"batch": 4}) is None
