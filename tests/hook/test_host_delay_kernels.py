"""A be program launches a kernel that spins until the program has launched what is behind it: the hook must let it go.

XLA times its variants of a kernel so, and its delay kernel gives up after 0.1 s. Then XLA measures how long the hook
held its launches, and chooses a variant by that. NVIDIA's nvbench and nvbandwidth put much work behind such a kernel.
"""

import pytest

from tests.hook.harness import Machine, percentile
from tests.hook.scripted_client import DEADLINE, MILLISECOND, Client, eventually, warm

pytestmark = pytest.mark.quiet

TIMINGS = 12
LONG = 3 * DEADLINE


def slow_timings(be: Client) -> list[float]:
    """Return how long the timings took that waited for the hook, in milliseconds, without the first three.

    The hook knows nothing of the first kernel, so what is behind it may wait.
    """
    warm(be, 100)
    took = [nanoseconds / MILLISECOND for nanoseconds in be.must(f"timings {TIMINGS} 100").more]
    return [each for each in took[3:] if each > 100]


def measurements(be: Client, number: int, kernels: int) -> list[float]:
    """Return how many ms each measurement takes: 2 for each kernel, and that the hook holds it.

    That is so much work that it does not go behind a kernel which only takes long.
    """
    return [nanoseconds / MILLISECOND for nanoseconds in be.must(f"timings {number} 2000 {kernels}", LONG).more]


def test_much_work_without_hp(machine: Machine) -> None:
    be = machine.start("be-0")
    warm(be, 100)
    # A launch that finds the ledger locked is not timed, so the hook does not know the kernel then.
    assert percentile(measurements(be, 10, 100)[3:], 50) < 900


def test_much_work_beside_an_idle_hp(machine: Machine) -> None:
    hp, be = machine.start("hp-0"), machine.start("be-0")
    machine.until_known(hp, be)
    warm(be, 100)
    eventually(lambda: measurements(be, 1, 12)[0] < 900, "the hook knows the first kernel", 2 * LONG)


def test_beside_an_idle_hp(machine: Machine) -> None:
    hp, be = machine.start("hp-0"), machine.start("be-0")
    machine.until_known(hp, be)
    assert slow_timings(be) == []


def test_without_hp(machine: Machine) -> None:
    assert slow_timings(machine.start("be-0")) == []


def test_a_kernel_that_had_to_wait_for_another_stream_is_held_by_the_window_again(machine: Machine) -> None:
    # In the second without progress the kernel of 1 ms did not wait for its program, but for the other stream's kernel.
    be = machine.start("be-0")
    for _ in range(20):
        be.must("run 2 50 1")
    be.must("run 1 1000 2")
    be.must("launch 1 1600000 1 50")
    be.must("follow 1 2")
    be.must("launch 200 1000 2")
    be.must("sync 2")
    launched = be.must("launch 400 1000 2")
    assert launched.ended - launched.began > 100 * MILLISECOND
    be.must("sync 2")
