"""The agent does not look at clients that say nothing, and sees it when one of them says something."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.hook import layout
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.sharing.usage import Usage
from tests.node_agent.hp_pages import HpClient, LookedAt

SECOND = 1_000_000_000
SAID = (
    "launches", "gated_launches", "gated_ns", "window_waits", "window_wait_ns", "waiting_since_ns", "in_flight_ns",
    "busy_ns", "busy_periods", "busy_since_ns", "linger_ns", "memory_bytes", "memory_refusals", "given_up", "gpu_ns",
    "overlapped_launches", "shares_context", "long_kernel_ns", "fault", "piece_ns", "credit_epoch", "parking",
    "parking_since_ns",
)  # fmt: skip


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LookedAt:
    return LookedAt(tmp_path, monkeypatch)


@pytest.fixture
def resting(gpu: LookedAt) -> HpClient:
    made = gpu.client("be-0")
    connection: Any = SimpleNamespace(stuck_since=None)
    made.client.ready, made.client.connection = True, connection
    assert not gpu.activity.rests(), "nobody has looked at it yet"
    assert gpu.activity.rests()
    return made


@pytest.mark.parametrize("word", SAID)
def test_a_client_that_says_something_is_looked_at_once(gpu: LookedAt, resting: HpClient, word: str) -> None:
    setattr(resting.record, word, 1)
    assert not gpu.activity.rests()
    assert gpu.activity.rests()


def test_each_of_several_clients_is_seen(gpu: LookedAt, resting: HpClient) -> None:
    other = gpu.client("be-1")
    other.client.ready, other.client.connection = True, resting.client.connection
    gpu.activity.rests()
    for each in (resting, other):
        each.record.launches += 1
        assert not gpu.activity.rests()
        assert gpu.activity.rests()


def test_the_time_of_the_last_count_is_no_news(gpu: LookedAt, resting: HpClient) -> None:
    resting.record.launches_counted_ns = 1
    assert gpu.activity.rests()


@pytest.mark.parametrize("what", ["busy", "dead", "not ready", "stuck"])
def test_a_client_does_not_rest_while(gpu: LookedAt, resting: HpClient, what: str) -> None:
    match what:
        case "busy":
            resting.busy.state = layout.BusyState.BUSY
        case "dead":
            resting.busy.alive = layout.FUTEX_OWNER_DIED
        case "not ready":
            resting.client.ready = False
        case "stuck":
            resting.client.connection.stuck_since = 1.0
    assert not gpu.activity.rests()
    assert not gpu.activity.rests()


def test_skipped_time_counts_as_idle(gpu: LookedAt) -> None:
    hp = gpu.client()
    gpu.look(gpu.now)
    hp.was_busy(gpu.now, gpu.now + SECOND)
    gpu.look(gpu.now + SECOND)
    assert gpu.shared_gpu.hp_busy_ratio == 1
    gpu.now += SECOND
    assert gpu.activity.skip() == SECOND
    assert gpu.shared_gpu.hp_busy_ratio == 0
    assert gpu.look(gpu.now + SECOND // 2).elapsed_ns == SECOND // 2, "a client that works again has not waited longer"


def test_usage_of_the_last_second_ends_while_nobody_is_looked_at(gpu: LookedAt) -> None:
    hp, usage = gpu.client(), Usage()
    usage.look(gpu.look(gpu.now), None)
    hp.was_busy(gpu.now, gpu.now + SECOND)
    usage.look(gpu.look(gpu.now + SECOND), None)
    assert usage.of("hp-0").second.slot.charged == 1
    for _ in range(4):
        gpu.now += SECOND // 2
        usage.skip(gpu.activity.skip())
    assert usage.of("hp-0").second.slot.charged == 0
    assert usage.of("hp-0").totals.charged == SECOND
    assert usage.of("hp-0").recent.seconds == 3


def test_a_check_that_failed_is_made_again_although_nobody_says_more(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    said = [False]

    def check(now_ns: int) -> None:
        checks.append(now_ns)
        if len(checks) == 1:
            raise OSError("a page")

    served: Any = ServedGpu.__new__(ServedGpu)
    no_plans = SimpleNamespace(plans={}, watched=False)
    look = SimpleNamespace(anything=False)
    activity = SimpleNamespace(
        rests=lambda: not said or said.pop(), skip=lambda: 0, look=lambda: look, share_out=lambda: None
    )
    served.__dict__ |= {
        "_active_ns": 0, "_looked_at_clients_ns": 9 * SECOND, "_conditions_ns": 100 * SECOND, "turns": no_plans,
        "ceilings": no_plans, "shared_gpu": SimpleNamespace(slots={}, stopped=()), "activity": activity,
        "joining": SimpleNamespace(look=check), "usage": SimpleNamespace(skip=lambda elapsed_ns: None),
    }  # fmt: skip
    monkeypatch.setattr(ServedGpu, "_plan", lambda served, look: None)
    with pytest.raises(OSError, match="a page"):
        served.look(10 * SECOND)
    for half in (21, 22, 23):
        served.look(half * SECOND // 2)
    assert checks == [10 * SECOND, 21 * SECOND // 2]
