"""Programs with green contexts of their own, each of which can be current to one thread at a time.

The hook manages their work as any other, and none of its threads makes such a context current: the simulated GPU would
refuse it, or refuse the program's own thread.
"""

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client

pytestmark = pytest.mark.quiet

HERE, ELSEWHERE = 0, 1
""" Whether the thread that launches has the green context as its current one, or another thread has it. """


@pytest.mark.parametrize("where", [HERE, ELSEWHERE])
def test_be_waits_for_work_in_a_green_context_of_hp(machine: Machine, pair: tuple[Client, Client], where: int) -> None:
    hp, be = pair
    machine.until_known(hp, be)
    launched = hp.must(f"green 1 100000 {where}")  # hp never waits for it, so the hook finds out when it is complete
    ran = be.must("run 1 10")
    assert ran.ended >= launched.began + 100 * MILLISECOND
    machine.until(hp, "idle")
    assert hp.said == be.said == []


@pytest.mark.parametrize("where", [HERE, ELSEWHERE])
def test_work_in_a_green_context_of_be_waits_for_hp(machine: Machine, pair: tuple[Client, Client], where: int) -> None:
    hp, be = pair
    machine.until_known(hp, be)
    be.must(f"green 4 10 {where}")
    be.must("ctxsync")
    launched = hp.must("launch 1 100000")
    be.must(f"green 1 10 {HERE if where == HERE else 2}")
    ran = be.must("ctxsync")
    assert ran.ended >= launched.began + 100 * MILLISECOND
    assert hp.said == be.said == []


def test_the_program_can_use_its_green_context_at_any_time(machine: Machine, pair: tuple[Client, Client]) -> None:
    """A thread of the hook that had it, if only for a moment, would make these calls fail."""
    hp, be = pair
    machine.until_known(hp, be)
    for _ in range(200):
        hp.must(f"green 1 100 {HERE}")
        hp.must("use 0")  # the primary context again
    assert hp.said == be.said == []
