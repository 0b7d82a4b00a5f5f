"""A be program launches a kernel that spins until the program has launched what is behind it: the hook must let it go.

XLA times its variants of a kernel so, and its delay kernel gives up after 0.1 s. Then XLA measures how long the hook
held its launches, and chooses a variant by that.
"""

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client, warm

pytestmark = pytest.mark.quiet

TIMINGS = 12


def slow_timings(be: Client) -> list[float]:
    """Return how long the timings took that waited for the hook, in milliseconds, without the first three.

    The hook knows nothing of the first kernel, so what is behind it may wait.
    """
    warm(be, 100)
    took = [nanoseconds / MILLISECOND for nanoseconds in be.must(f"timings {TIMINGS} 100").more]
    return [each for each in took[3:] if each > 100]


def test_beside_an_idle_hp(machine: Machine) -> None:
    hp, be = machine.start("hp-0"), machine.start("be-0")
    machine.until_known(hp, be)
    assert slow_timings(be) == []


def test_without_hp(machine: Machine) -> None:
    assert slow_timings(machine.start("be-0")) == []
