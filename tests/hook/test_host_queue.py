"""hp with seconds of queued work that no call waits for: be waits while hp works, and not longer than that."""

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client, warm

pytestmark = pytest.mark.quiet

Pair = tuple[Client, Client]


def be_waits(hp: Client, be: Client, queue: list[str], seconds: float) -> None:
    """Queue hp's work, which takes `seconds`; be must run only after it, and hp must take as long as alone."""
    warm(be, 5000, 5)
    answers = [hp.do(command) for command in queue]
    be.send("run 1 5000")
    done = hp.must("ctxsync").ended
    assert be.answer().ended >= answers[0].began + seconds * 1000 * MILLISECOND, "be did not wait for hp's queue"
    assert (done - answers[0].began) / 1e9 < seconds + 0.5, "hp took longer than alone"
    assert be.said == hp.said == []


@pytest.mark.parametrize("stream", [0, 1, 3])
def test_be_waits_for_four_seconds_of_queued_kernels(pair: Pair, stream: int) -> None:
    hp, be = pair
    be_waits(hp, be, [f"launch 160 25000 {stream}"], 4)


@pytest.mark.parametrize(
    "queue",
    [
        pytest.param(["launch 1000 2500 1"], id="as many kernels as a stream takes"),
        pytest.param(["launch 100 25000 1", "launch 1000 2000 2"], id="two streams"),
        pytest.param(["graphs 8 31250 10"], id="graphs"),
        pytest.param(["launch 100 25000 1", "context 1"], id="another context begins and ends"),
        pytest.param(["launch 100 25000 2", "retain 0.1 1"], id="the primary context is retained and released"),
    ],
)
def test_be_waits_for_a_queue_of(pair: Pair, queue: list[str]) -> None:
    hp, be = pair
    be_waits(hp, be, queue, 2.5)


def test_be_waits_for_a_queue_of_long_kernels_after_many_short_ones(pair: Pair) -> None:
    # The hook has learnt that a few events are enough for hp's launches.
    hp, be = pair
    assert hp.do("loop 1 10 100").result > 0
    be_waits(hp, be, ["launch 100 25000 1"], 2.5)


def test_an_hp_that_stops_completing_in_the_middle_of_a_queue_is_given_up_on(pair: Pair) -> None:
    hp, be = pair
    launched = hp.must("launch 60 25000")
    hp.must("launch 1 4000000")
    be.send("run 1 10")
    ran = (be.answer().ended - launched.began) / 1e9 - 1.5
    assert 0.8 < ran < 1.6, f"given up {ran} s after hp's last completion; the policy's stall time is 1 s"
    assert len(be.said) == 1
    assert "without completing anything" in be.said[0]


def test_a_context_that_is_reset_leaves_no_queue_behind(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    for _ in range(3):
        hp.must("launch 100 25000 1")
        hp.must("reset")
        machine.until(hp, "idle")
    be_waits(hp, be, ["launch 100 25000 1"], 2.5)


def test_several_threads_launch_and_progress_is_right(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    be.send("loop 2 100 4")
    assert hp.do("threads 8 2 200").result > 0
    assert be.answer().result > 0
    machine.until(hp, "idle")
    assert hp.said == be.said == []
