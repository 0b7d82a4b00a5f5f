"""The gate, in real processes: be waits while hp has work, and runs again when hp is idle."""

import random
import time
from pathlib import Path

import pytest

from tests.hook.harness import Machine, figure, percentile
from tests.hook.scripted_client import LONG_ENOUGH_TO_SEE, MILLISECOND, Client, busy, eventually, warm

pytestmark = pytest.mark.quiet

Pair = tuple[Client, Client]


def test_nothing_that_be_launches_while_hp_is_busy_runs_before_hp_is_idle(pair: Pair) -> None:
    # hp's kernels take 8 ms. A be kernel whose launch starts after hp's launch has returned ends after hp's kernels.
    hp, be = pair
    warm(be, 100)
    be.send("stamps 3 100")
    periods = []
    chance = random.Random(1)
    for _ in range(40):
        launched = hp.must("launch 1 8000")
        periods.append((launched.began, launched.ended))
        hp.must("sync")
        time.sleep(chance.uniform(0.002, 0.012))
    spans = be.answer().spans
    waited = 0
    for began, ended in spans:
        for hp_began, hp_ended in periods:
            if hp_ended <= began < hp_began + 8 * MILLISECOND:
                assert ended >= hp_began + 8 * MILLISECOND, f"ran {(ended - hp_ended) / 1e6} ms into hp's work"
                waited += 1
    assert waited >= 10, "the be client rarely waited at the gate"
    assert len(spans) > 300, "the be client did not run between hp's busy periods"


def test_at_most_one_kernel_that_had_passed_the_gate_runs_in_a_busy_period(pair: Pair) -> None:
    hp, be = pair
    warm(be, 20)
    be.send("stamps 1.0 20")
    late = []
    while not be.heard_something(0.003):
        launched = hp.must("launch 1 2000")
        late.append((launched.ended, launched.began + 2 * MILLISECOND))
        hp.must("sync")
    spans = be.answer().spans
    for from_, to in late:
        assert sum(from_ < ended < to for _, ended in spans) <= 1


@pytest.mark.parametrize("proof", ["sync", "ctxsync", "event", "query", "equery"])
def test_every_proof_of_completion_lets_be_run(pair: Pair, machine: Machine, proof: str) -> None:
    hp, be = pair
    for _ in range(3):
        launched = hp.must("launch 3 1000")
        be.send("run 1 10")
        hp.must(proof)
        assert be.answer().ended >= launched.began + 3 * MILLISECOND
    machine.until(hp, "idle")


@pytest.mark.parametrize("stream", [0, 1, 3])
def test_work_on_every_kind_of_stream_holds_be(pair: Pair, stream: int) -> None:
    hp, be = pair
    for be_stream in (0, 1, 3):
        launched = hp.must(f"launch 1 5000 {stream}")
        be.send(f"run 1 10 {be_stream}")
        hp.must(f"sync {stream}")
        assert be.answer().ended >= launched.began + 5 * MILLISECOND


def test_proof_of_one_stream_of_two_does_not_open_the_gate(pair: Pair) -> None:
    hp, be = pair
    long = hp.must("launch 1 60000 1")
    hp.must("launch 1 10 2")
    be.send("run 1 10")
    hp.must("sync 2")
    assert be.answer().ended >= long.began + 60 * MILLISECOND
    hp.must("sync 1")


def test_both_of_two_be_clients_wait_and_run(machine: Machine) -> None:
    hp, first, second = machine.start("hp-0"), machine.start("be-0"), machine.start("be-1")
    for _ in range(5):
        with busy(hp, 20) as launched:
            for be in (first, second):
                be.send("run 1 10")
        for be in (first, second):
            assert be.answer().ended >= launched.began + 20 * MILLISECOND


def test_be_waits_for_all_busy_hp_clients(machine: Machine) -> None:
    first, second, be = machine.start("hp-0"), machine.start("hp-0"), machine.start("be-0")
    short = first.must("launch 1 2000")
    long = second.must("launch 1 30000")
    be.send("run 1 10")
    first.must("sync")
    assert be.answer().ended >= max(short.began + 2 * MILLISECOND, long.began + 30 * MILLISECOND)


def test_the_linger_holds_be_through_a_token_loops_gaps(pair: Pair, machine: Machine) -> None:
    # Each request is 600 us of work. Then hp makes no call for about 150 us. After some gaps, the hook treats the
    # requests and the gaps as one busy period.
    hp, be = pair
    warm(be, 300)
    for _ in range(3):
        hp.do("serve 100 600 750 1")
    be.send("stamps 0.5 300")
    while not be.heard_something(0):
        hp.do("serve 20 600 750 1")
    between = len(be.answer().spans)
    shown = machine.shown(hp)
    assert shown is not None
    assert 100 <= shown.linger_us <= 2500
    # 0.5 s contain about 660 gaps; without the linger, be would run in most of them.
    assert between < 200, f"{between} be launches in the gaps of one token loop"
    machine.until(hp, "idle")
    be.must("run 1 10", 1.0)


def test_hp_that_never_synchronises_is_found_idle(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    for _ in range(10):
        launched = hp.must("launch 10 1000")
        be.send("run 1 10")
        ran = be.answer().ended
        assert ran >= launched.began + 10 * MILLISECOND
        assert ran <= launched.began + 110 * MILLISECOND, "the drain thread noticed late"
    machine.until(hp, "idle")


def test_a_flood_without_synchronise_holds_be_until_it_pauses(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    hp.send("flood 0.3 100")
    machine.until(hp, "busy")
    be.send("run 1 10")
    flood = hp.answer()
    assert be.answer().ended >= flood.ended
    machine.until(hp, "idle")


def test_an_idle_hp_is_not_stalled(pair: Pair, machine: Machine) -> None:
    # be sees hp's last progress while hp lingers. Then hp is idle for longer than the stall time, after which be no
    # longer waits for an hp without progress. be must still wait for hp's next work.
    hp, be = pair
    machine.agent.set_policy(machine.uuids[0], linger_floor_us=100_000, linger_ceiling_us=100_000)
    with busy(hp, 30):
        be.send("run 1 10")
    be.answer()
    idle_since = time.monotonic()
    eventually(lambda: time.monotonic() > idle_since + 1.3, "1.3 s have passed")
    with busy(hp, 60) as launched:
        be.send("run 1 10")
    assert be.answer().ended >= launched.began + 60 * MILLISECOND
    assert be.said == []


def test_policy_none_gates_no_launch_and_gate_holds_again(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    machine.agent.set_policy(machine.uuids[0], policy="none")
    with busy(hp, LONG_ENOUGH_TO_SEE) as launched:
        assert be.must("run 1 10").ended < launched.began + LONG_ENOUGH_TO_SEE * MILLISECOND
    machine.agent.set_policy(machine.uuids[0], policy="gate")
    be.must("sync")
    with busy(hp, 30) as launched:
        be.send("run 1 10")
    assert be.answer().ended >= launched.began + 30 * MILLISECOND


def test_policy_none_frees_a_launch_that_waits_at_the_gate(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    with busy(hp, LONG_ENOUGH_TO_SEE) as launched:
        be.send("run 1 10")
        machine.until(be, "gated")
        machine.agent.set_policy(machine.uuids[0], policy="none")
        assert be.answer().ended < launched.began + LONG_ENOUGH_TO_SEE * MILLISECOND


def test_the_agent_shows_a_long_wait_to_its_end(pair: Pair, machine: Machine) -> None:
    # The kernel waits behind the valve and has no event: the hook must not take it for a kernel that ended long ago.
    hp, be = pair
    with busy(hp, LONG_ENOUGH_TO_SEE):
        be.send("run 1 10")
        machine.until(be, "gated")
        shown, end = [], time.monotonic() + 0.4
        while time.monotonic() < end:
            shown.append(machine.state_of(be))
        assert set(shown) == {"gated"}
    assert be.answer().result == 0


def test_a_library_that_retains_and_releases_the_primary_context_does_not_free_held_work(pair: Pair) -> None:
    hp, be = pair
    warm(be, 100)
    launched = hp.must("launch 1 500000")
    be.send("launch 1 100\nretain 0 100\nquery")
    hp.must("sync")
    assert [be.answer().result, be.answer().result] == [0, 0]
    assert be.answer().ended >= launched.began + 500 * MILLISECOND


def test_a_changed_memory_limit_reaches_a_running_client(pair: Pair, machine: Machine) -> None:
    _, be = pair
    machine.agent.set_grant(machine.uuids[0], "be-0", memory_limit_bytes=1 << 30)
    assert be.must("alloc 1000000").result == 0
    assert be.do("info").result == 1 << 30
    assert be.do(f"alloc {1 << 30}").result == 2  # CUDA_ERROR_OUT_OF_MEMORY
    machine.agent.set_grant(machine.uuids[0], "be-0", memory_limit_bytes=0)
    assert be.must(f"alloc {1 << 30}").result == 0
    assert be.do("info").result > 1 << 30


def test_the_agent_shows_the_counters_of_both_clients(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    for _ in range(4):
        with busy(hp, 50):
            be.send("run 1 10")
        be.answer()
    be.must("sync")
    machine.until(hp, "idle")

    def counted() -> bool:
        shown_hp, shown_be = machine.shown(hp), machine.shown(be)
        assert shown_hp is not None
        assert shown_be is not None
        return (shown_hp.launches, shown_be.launches) == (4, 4)

    eventually(counted, "both clients' launches are counted")
    shown_hp, shown_be = machine.shown(hp), machine.shown(be)
    assert shown_hp is not None
    assert shown_be is not None
    assert 0.19 <= shown_hp.busy_seconds < 0.4
    assert 4 <= shown_be.gated_launches <= 8  # the hook may count a wait twice: before a launch and after it
    assert 0.15 <= shown_be.gated_seconds < 0.4
    assert shown_be.in_flight_us == 0
    assert shown_hp.condition == shown_be.condition == ""


@pytest.mark.parametrize("waiting", [1, 4])
def test_from_hp_idle_to_be_running(machine: Machine, waiting: int) -> None:
    # The measured time starts at the end of hp's kernel and includes the linger, 50 us here.
    machine.agent.set_policy(machine.uuids[0], linger_floor_us=50, linger_ceiling_us=50)
    hp = machine.start("hp-0")
    clients = [machine.start(f"be-{number}") for number in range(waiting)]
    for be in clients:
        warm(be, 10, 5)
    first, last = [], []
    for _ in range(60):
        launched = hp.must("launch 1 10000")
        for be in clients:
            be.send("run 1 10")
        idle = hp.must("sync").ended
        assert idle >= launched.began + 10 * MILLISECOND
        ran = [(be.answer().ended - idle) / 1000 - 50 for be in clients]
        first.append(min(ran))
        last.append(max(ran))
        for be in clients:
            be.must("sync")
    figure(f"from hp idle to the first of {waiting} be running", first, "us")
    figure(f"from hp idle to the last of {waiting} be running", last, "us")
    assert percentile(first, 50) < 5000  # ten times what is normal on two cores


def test_long_work_on_one_gpu_does_not_hide_the_end_of_work_on_another(c_build: Path) -> None:
    # No thread synchronises: the hook must find the end of the work on each GPU separately.
    with Machine(c_build, gpus=2) as machine:
        machine.start_agent()
        hp = machine.start_in(machine.client_root("hp-0", "hp-0"))
        hp.must("init 0")
        hp.must("init 1")
        for gpu in range(2):
            machine.until_joined(hp, gpu=gpu)
        hp.must("use 0")
        launched = hp.must("launch 1 3000000 1")
        machine.until(hp, "busy", gpu=0)
        hp.must("use 1")
        hp.must("launch 1 1000 1")
        machine.until(hp, "idle", gpu=1, seconds=2)
        assert machine.state_of(hp, gpu=0) == "busy"
        assert hp.must("sync 1").ended < launched.began + 3000 * MILLISECOND
