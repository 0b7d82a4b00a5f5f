"""What several hp processes use: a time in which two of them are busy counts once, for the GPU and for each slot."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from orion.hook import layout
from orion.node_agent.sharing.ceilings import Ceilings
from orion.node_agent.sharing.windows import Look
from tests.node_agent.hp_pages import HpClient, LookedAt

MS = 1_000_000
LOOK_NS = 25 * MS
EARLIER_HOOK = False


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LookedAt:
    return LookedAt(tmp_path, monkeypatch)


def look_after(gpu: LookedAt, clients: Sequence[HpClient], *periods: tuple[float, float]) -> Look:
    """Let all clients be busy in the same periods, by parts of the time to the next look; look."""
    begin = gpu.now
    for client in clients:
        for part in periods:
            client.was_busy(*(begin + round(LOOK_NS * each) for each in part))
    return gpu.look(begin + LOOK_NS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_limit_of_be_is_the_same_part_of_the_gpu_however_many_hp_processes_are_busy_at_once(
    gpu: LookedAt, count: int
) -> None:
    gpu.slot("be-0", layout.Role.BE).set(limit_milli=200)
    clients = [gpu.client() for _ in range(count)]
    for _ in range(50):
        look = look_after(gpu, clients, (0.1, 0.6))
    assert gpu.shared_gpu.hp_busy_ratio == pytest.approx(0.5)
    assert look.left == pytest.approx(0.5)
    assert gpu.activity.without_clients(look)["be-0"].limit == pytest.approx(0.2 / 0.5)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_processes_that_are_busy_at_once_below_the_limit_of_their_slot_never_wait(gpu: LookedAt, count: int) -> None:
    clients, ceilings = [gpu.client() for _ in range(count)], Ceilings()
    for _ in range(200):
        look = look_after(gpu, clients, (0.2, 0.5))
        ceilings.look(look.now_ns, look.hp_used_ns, {"hp-0": 0.5})
        assert not ceilings.plans
    assert look.hp_used_ns == {"hp-0": pytest.approx(0.3 * LOOK_NS)}


def test_each_slot_uses_the_union_of_its_own_clients(gpu: LookedAt) -> None:
    first, second, other, idle = gpu.client(), gpu.client(), gpu.client("hp-1"), gpu.client("hp-2")
    begin = gpu.now
    first.was_busy(begin + 1 * MS, begin + 6 * MS)
    second.was_busy(begin + 4 * MS, begin + 9 * MS)
    other.was_busy(begin + 8 * MS, begin + 14 * MS)
    look = gpu.look(begin + LOOK_NS)
    assert look.hp_used_ns == {"hp-0": 8 * MS, "hp-1": 6 * MS, "hp-2": 0}
    assert look.hp_busy_ns == 13 * MS
    assert idle.record.busy_ns == 0


@pytest.mark.parametrize("state", [layout.BusyState.BUSY, layout.BusyState.CLOSING, layout.BusyState.LINGER])
def test_hp_that_is_frozen_takes_no_time_from_be_once_be_waits_no_more(gpu: LookedAt, state: layout.BusyState) -> None:
    client, stall_ns = gpu.client(), 10 * MS
    gpu.shared_gpu.set_policy(gpu.shared_gpu.policy.changed(words={"stall_ns": stall_ns}))
    gpu.look(gpu.now + LOOK_NS)
    client.busy.state = state
    if state is layout.BusyState.BUSY:
        client.open(gpu.now)
    begin = gpu.now + LOOK_NS
    assert [gpu.look(begin + after).left for after in (0, stall_ns, stall_ns + MS)] == [0, 0, 1]
    client.busy.progress += 1
    assert gpu.look(gpu.now + LOOK_NS).left == 0


def test_a_kernel_of_hp_that_be_waits_for_no_more_is_still_use_of_its_slot(gpu: LookedAt) -> None:
    stalls, works = gpu.client(), gpu.client("hp-1")
    stalls.busy.state = layout.BusyState.BUSY
    stalls.open(gpu.now)
    gpu.look(gpu.now + LOOK_NS)
    gpu.look(gpu.now + gpu.shared_gpu.policy.stall_ns)
    works.was_busy(gpu.now + 5 * MS, gpu.now + 10 * MS)
    look = gpu.look(gpu.now + LOOK_NS)
    assert look.hp_used_ns == {"hp-0": LOOK_NS, "hp-1": 5 * MS}
    assert (look.hp_busy_ns, look.hp_took_ns) == (LOOK_NS, 5 * MS)
    assert look.hp_stall_ns == gpu.shared_gpu.policy.stall_ns
    assert gpu.shared_gpu.hp_busy_ratio == 1.0


def test_a_process_may_wait_for_one_stalled_hp_client_after_the_other(gpu: LookedAt) -> None:
    clients, stall_ns = [gpu.client(), gpu.client("hp-1"), gpu.client("hp-2")], gpu.shared_gpu.policy.stall_ns
    for client in clients[:2]:
        client.busy.state = layout.BusyState.BUSY
        client.open(gpu.now)
    gpu.look(gpu.now + LOOK_NS)
    assert gpu.look(gpu.now + stall_ns + MS).hp_stall_ns == 2 * stall_ns
    clients[0].busy.progress += 1
    assert gpu.look(gpu.now + LOOK_NS).hp_stall_ns == stall_ns


def test_a_period_counts_at_each_look_the_time_since_the_look_before(gpu: LookedAt) -> None:
    clients, begin = [gpu.client(), gpu.client()], gpu.now
    for client in clients:
        client.open(begin + 5 * MS)
    assert gpu.look(begin + 25 * MS).hp_busy_ns == 20 * MS
    for client in clients:
        client.close(begin + 30 * MS)
    assert gpu.look(begin + 50 * MS).hp_busy_ns == 5 * MS
    assert gpu.look(begin + 75 * MS).hp_busy_ns == 0


@pytest.mark.parametrize("shifted", [False, True])
def test_of_more_periods_than_a_page_has_the_last_ones_are_a_sample(gpu: LookedAt, shifted: bool) -> None:
    """Two clients are busy at the same times, or in turn, 500 times between two looks."""
    clients, begin = [gpu.client(), gpu.client()], gpu.now
    for number in range(500):
        for client, late in zip(clients, (0, 25_000 * shifted), strict=True):
            client.was_busy(begin + number * 50_000 + late, begin + number * 50_000 + late + 25_000)
    assert gpu.look(begin + LOOK_NS).hp_busy_ns == pytest.approx(LOOK_NS * (1.0 if shifted else 0.5), rel=0.01)


@pytest.mark.parametrize("other_writes", [True, False])
def test_beside_an_earlier_hook_busy_times_count_as_independent(gpu: LookedAt, other_writes: bool) -> None:
    clients = [gpu.client(writes_periods=EARLIER_HOOK), gpu.client(writes_periods=other_writes)]
    for _ in range(2):
        look = look_after(gpu, clients, (0.1, 0.3), (0.4, 0.6))
    assert look.hp_busy_ns == pytest.approx((1 - 0.6 * 0.6) * LOOK_NS)


@pytest.mark.parametrize("count", [1, 2])
def test_be_has_no_time_in_the_lingers_of_hp(gpu: LookedAt, count: int) -> None:
    """hp is busy for 3 of each 10 ms, and lingers for 2 ms, also at the moments of some looks."""
    gpu.slot("be-0", layout.Role.BE).set(limit_milli=200)
    clients, begin, at = [gpu.client() for _ in range(count)], gpu.now, gpu.now
    lefts = []
    for client in clients:
        client.record.linger_ns = 2 * MS
    for look in range(1, 60):
        now = begin + look * 74 * MS
        while at + 3 * MS <= now:
            for client in clients:
                client.was_busy(at, at + 3 * MS)
            at += 10 * MS
        for client in clients:
            client.busy.state = layout.BusyState.LINGER if now < at - 5 * MS else layout.BusyState.IDLE
            if at < now:
                client.busy.state = layout.BusyState.BUSY
                client.open(at)
        found = gpu.look(now)
        lefts.append(found.left)
        since = now - found.elapsed_ns
        assert all(since <= first < last <= now for first, last in found.closed)
        assert sum(last - first for first, last in found.closed) == found.hp_took_ns
    assert sum(lefts) / len(lefts) == pytest.approx(0.5, abs=0.005)
    assert max(lefts) - min(lefts) < 0.06
    assert gpu.shared_gpu.hp_busy_ratio == pytest.approx(0.3, abs=0.02)
    assert gpu.activity.without_clients(found)["be-0"].limit == pytest.approx(0.2 / 0.5, rel=0.04)


@pytest.mark.parametrize(("linger", "took"), [(0.0, 0.2), (0.1, 0.4), (0.3, 0.7)])
def test_a_linger_ends_with_the_next_busy_period(gpu: LookedAt, linger: float, took: float) -> None:
    client = gpu.client()
    client.record.linger_ns = round(linger * LOOK_NS)
    gpu.shared_gpu.set_policy(gpu.shared_gpu.policy.changed(words={"linger_ceiling_ns": LOOK_NS}))
    look = look_after(gpu, [client], (0.1, 0.2), (0.4, 0.5))
    assert look.hp_used_ns == {"hp-0": 0.2 * LOOK_NS}
    assert look.hp_took_ns == pytest.approx(took * LOOK_NS)


def test_busy_periods_that_a_page_no_longer_has_lingered_as_the_others(gpu: LookedAt) -> None:
    client = gpu.client()
    client.record.linger_ns = 10_000
    for at in range(gpu.now, gpu.now + LOOK_NS, 50_000):
        client.was_busy(at, at + 20_000)
    look = gpu.look(gpu.now + LOOK_NS)
    assert look.left == pytest.approx(0.4, abs=0.01)
    assert not look.closed


def test_a_client_claims_no_longer_linger_than_the_policy_has(gpu: LookedAt) -> None:
    client = gpu.client()
    client.record.linger_ns = 2**63
    look = look_after(gpu, [client], (0.1, 0.3))
    assert look.hp_took_ns == 0.2 * LOOK_NS + gpu.shared_gpu.policy.linger_ceiling_ns


def test_a_client_whose_busy_periods_are_longer_than_its_busy_time_shows_no_times(gpu: LookedAt) -> None:
    client = gpu.client()
    client.was_busy(gpu.now, gpu.now + 20 * MS)
    client.record.busy_ns -= 10 * MS
    look = gpu.look(gpu.now + LOOK_NS)
    assert (look.hp_took_ns, look.closed) == (10 * MS, [])


@pytest.mark.parametrize(("kind", "part"), [(layout.PolicyKind.NONE, 1.0), (layout.PolicyKind.GATE, 0.5)])
def test_hp_takes_time_from_be_only_where_be_waits(gpu: LookedAt, kind: layout.PolicyKind, part: float) -> None:
    gpu.shared_gpu.set_policy(replace(gpu.shared_gpu.policy, kind=kind))
    gpu.slot("be-0", layout.Role.BE).set(limit_milli=200)
    clients = [gpu.client()]
    for _ in range(50):
        look = look_after(gpu, clients, (0.1, 0.6))
    assert look.left == pytest.approx(part)
    assert bool(look.closed) == (part < 1)
    assert gpu.activity.without_clients(look)["be-0"].limit == pytest.approx(0.2 / part)


def test_an_hp_that_was_stopped_while_it_was_busy_takes_no_time_from_be(gpu: LookedAt) -> None:
    hp = gpu.client()
    hp.open(gpu.now)
    gpu.look(gpu.now + LOOK_NS)
    gpu.shared_gpu.mark_stopped(hp.client, True)
    for _ in range(50):
        look = gpu.look(gpu.now + LOOK_NS)
    assert (look.left, look.hp_used_ns) == (1.0, {"hp-0": 0})
    gpu.shared_gpu.mark_stopped(hp.client, False)
    look = gpu.look(gpu.now + LOOK_NS)
    assert (look.left, look.hp_used_ns) == (0.0, {"hp-0": LOOK_NS})
