"""A client that pauses between its kernels: it hands its turns back, and pays for kernels that run on after them."""

import pytest

from tests.hook.gpu_time import shares_of_the_next, start_traced
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import warm

pytestmark = pytest.mark.quiet

KERNEL_US, PAUSE_US = 1000, 6000
SHORT_PAUSES_US = (1000, 1500, 3000)
""" Each is longer than the client has learnt to wait by the one before, but not much. """
SECONDS = 4.0
LONG_KERNEL_US, LONG_PAUSE_US, SHORT_KERNEL_US = 4600, 900, 300


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


def test_a_client_that_pauses_between_long_kernels_pays_for_what_runs_on(machine: Machine) -> None:
    """Two of its kernels fit into a turn, but not the pause between them, in which it keeps its turn."""
    pauses, pausing = start_traced(machine, "be-0")
    other, working = start_traced(machine, "be-1")
    warm(pauses, LONG_KERNEL_US)
    warm(other, SHORT_KERNEL_US)
    other.send(f"flood 16000 {SHORT_KERNEL_US}")
    pauses.send(f"pausing 900 {LONG_KERNEL_US} {LONG_PAUSE_US}")
    shares_of_the_next(2.0, {"pauses": pausing, "other": working})
    found = shares_of_the_next(SECONDS, {"pauses": pausing, "other": working})
    what = ", ".join(f"{share:.3f}" for share in found.values())
    figure(
        f"shares of a client with kernels of 4.6 ms and pauses of 0.9 ms, and of another one: {what}",
        [found["pauses"]],
        "",
    )
    assert found["pauses"] < found["other"]  # a part of its half of the time is its pauses
