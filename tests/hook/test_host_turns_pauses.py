"""A client that pauses between its kernels hands its turns back, whatever pauses it had before."""

import pytest

from tests.hook.gpu_time import shares_of_the_next, start_traced
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import warm

pytestmark = pytest.mark.quiet

KERNEL_US, PAUSE_US = 1000, 6000
SHORT_PAUSES_US = (1000, 1500, 3000)
""" Each is longer than the client has learnt to wait by the one before, but not much. """
SECONDS = 4.0


def test_a_client_with_long_pauses_hands_its_turns_back_after_short_ones_too(machine: Machine) -> None:
    pauses, pausing = start_traced(machine, "be-0")
    other, working = start_traced(machine, "be-1")
    for client in (pauses, other):
        warm(client, KERNEL_US)
    other.send(f"flood 300 {KERNEL_US}")
    for pause_us in SHORT_PAUSES_US:
        pauses.do(f"pausing 1 {KERNEL_US} {pause_us}")
    pauses.send(f"pausing 300 {KERNEL_US} {PAUSE_US}")
    shares_of_the_next(1.0, {"pauses": pausing, "other": working})
    found = shares_of_the_next(SECONDS, {"pauses": pausing, "other": working})
    what = ", ".join(f"{share:.3f}" for share in found.values())
    figure(f"shares of a client that pauses, and of another one: {what}", [found["other"]], "")
    assert found["other"] > 0.6  # half of the time is its own
