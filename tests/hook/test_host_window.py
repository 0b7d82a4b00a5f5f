"""The window, in real processes: it bounds what a be client has in flight when hp arrives, and it never leaks."""

import time
from pathlib import Path

import pytest

from tests.hook.harness import Machine, figure, percentile
from tests.hook.scripted_client import MILLISECOND, Client, busy, eventually, warm

pytestmark = pytest.mark.quiet

Pair = tuple[Client, Client]


def served_while(hp: Client, others: list[Client], loop: str, requests: int = 150, seconds: float = 2.0) -> list[float]:
    """hp's latencies in milliseconds, with one kernel of 500 us per request, while the others run a closed loop."""
    for be in others:
        be.send(f"loop {seconds} {loop}")
    latencies = hp.do(f"serve {requests} 500 {seconds * 0.8e6 / requests:.0f} 1").more
    for be in others:
        assert be.answer().result > 10
    return [latency / 1e6 for latency in latencies]


@pytest.mark.parametrize("number", [1, 2])
def test_hp_waits_for_one_window_however_many_be_clients_fill_it(machine: Machine, number: int) -> None:
    # Without the hook, be always has 20 kernels of 200 us queued, 4 ms. The window is 500 us for all be clients
    # together. hp's own work is 500 us. The GPU does not preempt a running kernel within its slice of 2 ms.
    hp = machine.start("hp-0")
    others = [machine.start(f"be-{index}") for index in range(number)]
    for be in others:
        warm(be, 200)
    latencies = served_while(hp, others, "200 20")
    figure(f"hp latency of 0.5 ms requests beside {number} be", latencies, "ms")
    assert percentile(latencies, 50) < 0.5 + 0.5 + 0.5


def test_the_window_is_divided_among_the_clients_of_a_slot(machine: Machine) -> None:
    first, second = machine.start("be-0"), machine.start("be-0")
    for be in (first, second):
        be.send("loop 1.5 100 10")

    def shares() -> list[int]:
        return [slot.window_share_us for slot in machine.gpu().slots if slot.clients]

    half = machine.gpu().window_us // 2
    eventually(lambda: shares() == [half], "each has half of the window", 1.4)
    assert first.answer().result > 0
    assert second.answer().result > 0


def test_unknown_kernels_go_one_at_a_time(pair: Pair) -> None:
    # be launches eight unknown kernels of 20 ms without waiting. hp comes during the first one, with 200 ms of work.
    # One more kernel may have passed; the others run after hp.
    hp, be = pair
    warm(be, 100)
    be.must("launch 1 20000")
    for new in range(1, 8):
        be.send(f"launch 1 {20000 + new}")
    with busy(hp, 200) as launched:
        pass
    for _ in range(7):
        assert be.answer().result == 0
    assert be.must("sync").ended >= launched.began + (200 + 6 * 20) * MILLISECOND


def test_long_kernels_go_one_at_a_time(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    warm(be, 5000, 10)
    be.send("launch 20 5000")
    waits = []
    for _ in range(5):
        launched = hp.must("launch 1 100")
        waits.append((hp.must("sync").ended - launched.began) / 1e6)
    assert be.answer().result == 0
    be.must("sync")
    # One kernel of 5 ms may be running, and its context has the GPU for a slice of 2 ms.
    assert percentile(waits, 50) < 12
    machine.until(hp, "idle")


def test_a_flood_without_synchronise_neither_deadlocks_nor_leaks(machine: Machine) -> None:
    be = machine.start("be-0")
    assert be.do("flood 1.0 50").result > 1000
    be.must("sync")
    eventually(lambda: in_flight(machine, be) == 0, "nothing is in flight")
    assert be.do("flood 0.3 50").result > 1000


def in_flight(machine: Machine, client: Client) -> int:
    shown = machine.shown(client)
    assert shown is not None
    return shown.in_flight_us


def test_a_launch_does_not_wait_for_ever_for_work_that_needs_this_launch(machine: Machine) -> None:
    be = machine.start("be-0")
    warm(be, 100)
    be.must("launch 1 3000000 0 100")  # takes three seconds and looks like one of 100 us
    be.must("launch 100 100", 10)
    be.must("sync")
    be.must("launch 1 100")
    be.must("sync")


def test_streams_come_and_go(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    be.send("streams 3000 20")
    hp.must("streams 300 20")
    assert be.answer().result == 0
    hp.must("ctxsync")
    be.must("ctxsync")
    machine.until(hp, "idle")
    eventually(lambda: in_flight(machine, be) == 0, "nothing is in flight")
    with busy(hp, 30) as launched:
        be.send("run 1 10")
    assert be.answer().ended >= launched.began + 30 * MILLISECOND


def test_work_of_destroyed_streams_keeps_to_the_window(machine: Machine) -> None:
    # 400 ms of kernels, two of which run at the same time. At most 32 windows of 0.5 ms may be queued.
    be = machine.start("be-0")
    warm(be, 1000)
    assert be.must("streams 400 1000").seconds > 0.15
    be.must("ctxsync")


def test_an_hp_stream_destroyed_with_work_under_way_holds_be_until_it_is_over(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    launched = hp.must("streams 1 40000")
    be.send("run 1 10")
    assert be.answer().ended >= launched.began + 40 * MILLISECOND
    machine.until(hp, "idle")


def test_streams_beyond_the_stream_records_prove_nothing_for_each_other(pair: Pair, machine: Machine) -> None:
    # The hook keeps records of about a thousand streams; all other streams share a record. That the work of
    # one of these has ended shows nothing about the others.
    hp, be = pair
    hp.must("crowd 1300")
    hp.must("ctxsync")
    machine.until(hp, "idle")
    long = hp.must("launch 1 60000 1250")
    hp.must("launch 1 10 1251")
    be.send("run 1 10")
    hp.must("sync 1251")
    assert be.answer().ended >= long.began + 60 * MILLISECOND
    hp.must("sync 1250")
    machine.until(hp, "idle")


def test_a_be_client_with_more_streams_than_stream_records_still_runs(machine: Machine) -> None:
    be = machine.start("be-0")
    be.must("crowd 1300")
    be.must("launch 10 20 1299")
    be.must("ctxsync")
    be.must("streams 20 20")
    be.must("launch 10 20 1298")
    be.must("ctxsync")
    eventually(lambda: in_flight(machine, be) == 0, "nothing is in flight")


@pytest.mark.parametrize("end", ["reset", "context 3000"])
def test_contexts_end_with_work_under_way(pair: Pair, machine: Machine, end: str) -> None:
    hp, be = pair
    for _ in range(5):
        for client in (hp, be):
            client.must("launch 5 2000")
            client.must(end)
            client.must("launch 5 10 1")
            client.must("sync 1")
            client.must("ctxsync")
            machine.until(hp, "idle")
    eventually(lambda: in_flight(machine, be) == 0, "nothing is in flight")
    with busy(hp, 20) as launched:
        be.send("run 1 10")
    assert be.answer().ended >= launched.began + 20 * MILLISECOND


def test_threads_with_separate_streams(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    be.send("threads 4 1.0 100")
    hp.send("threads 4 1.0 100")
    assert hp.answer().result > 100
    assert be.answer().result > 0
    machine.until(hp, "idle")
    eventually(lambda: in_flight(machine, be) == 0, "nothing is in flight")


def test_hp_on_one_gpu_does_not_hold_be_on_another(c_build: Path) -> None:
    with Machine(c_build, gpus=2) as machine:
        machine.start_agent()
        hp, be = machine.start("hp-0", "hp-0"), machine.start("be-0", "be-0")
        hp.must("init 1")
        machine.until_joined(hp, gpu=1)
        hp.must("use 0")
        be.must("init 1")
        machine.until_joined(be, gpu=1)
        with busy(hp, 400) as launched:
            be.must("use 1")
            assert be.must("run 1 10").ended < launched.began + 400 * MILLISECOND
            be.must("sync")
            be.must("use 0")
            be.send("run 1 10")
        assert be.answer().ended >= launched.began + 400 * MILLISECOND
        be.must("sync")
        hp.must("use 1")
        with busy(hp, 30) as launched:
            be.must("use 1")
            be.send("run 1 10")
        assert be.answer().ended >= launched.began + 30 * MILLISECOND


def test_be_waits_for_a_busy_hp_that_joins_later(machine: Machine) -> None:
    be = machine.start("be-0")
    be.send("stamps 1.5 100")
    began = time.monotonic_ns()
    hp = machine.start("hp-0")
    with busy(hp, 200) as launched:
        pass
    spans = be.answer().spans
    # News of a new hp client takes up to 20 ms; after that, be launches nothing.
    inside = [
        ended for _, ended in spans if launched.began + 50 * MILLISECOND < ended < launched.began + 190 * MILLISECOND
    ]
    assert len(inside) <= 1
    assert any(ended < launched.began for _, ended in spans)
    assert began < launched.began


def test_a_stream_that_waits_for_another_stream_does_not_hold_the_launch_that_it_waits_for(pair: Pair) -> None:
    _, be = pair
    warm(be, 100)
    answer = be.do("handshake 10 20")
    assert answer.result == 0
    assert answer.seconds < 5.0  # normally 0.3 s; a second for each wait whose launch is held
