"""The verdict on a GPU turns bad soon after errors, ignores a single transient error, and recovers in limited time."""

from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.gpus.hysteresis import Hysteresis, Patience
from orion.node_agent.gpus.interface import HEALTHY, Health

BAD, TRANSIENT = Health(False, "GPULost", "It is lost."), Health(False, "DriverError", "It said no.", critical=False)
LONG = Patience(doubts=3, looks=4, hold_s=5.0, hold_max_s=40.0, forget_s=100.0)
REPORTS = st.lists(
    st.tuples(st.sampled_from([HEALTHY, BAD, TRANSIENT]), st.floats(0.1, 3.0, allow_nan=False)),
    min_size=1,
    max_size=300,
)


@given(REPORTS)
def test_a_verdict_changes_when_it_must_and_not_before(reports: list[tuple[Health, float]]) -> None:
    kept, now = Hysteresis(LONG), 0.0
    history: list[tuple[float, Health]] = []
    for report, step in reports:
        now += step
        before = kept.verdict
        history.append((now, report))
        changed = kept.look(report, now)
        assert changed == (kept.verdict != before)
        if not report.healthy and report.critical:
            assert not kept.verdict.healthy
        if before.healthy and not kept.verdict.healthy and not report.critical:
            assert all(not each.healthy for _, each in history[-LONG.doubts :])
            assert len(history) >= LONG.doubts
        if not before.healthy and kept.verdict.healthy:
            good = history[-LONG.looks :]
            assert len(good) == LONG.looks
            assert all(each.healthy for _, each in good)
            assert all(each.healthy for when, each in history if when > now - LONG.hold_s)


@given(REPORTS)
def test_a_gpu_without_further_errors_is_healthy_in_limited_time(reports: list[tuple[Health, float]]) -> None:
    kept, now = Hysteresis(LONG), 0.0
    for report, step in reports:
        now += step
        kept.look(report, now)
    for _ in range(int(LONG.hold_max_s) + LONG.looks + 1):
        now += 1.0
        kept.look(HEALTHY, now)
    assert kept.verdict.healthy


def test_a_flapping_gpu_stays_unhealthy_longer_each_time_and_recovers_later() -> None:
    kept, now, holds = Hysteresis(LONG), 0.0, []

    def recover() -> float:
        nonlocal now
        begun = now
        while not kept.verdict.healthy:
            now += 0.5
            kept.look(HEALTHY, now)
        return now - begun

    for _ in range(6):
        kept.look(BAD, now)
        holds.append(recover())
    assert holds == [5.5, 10.5, 20.5, 40.5, 40.5, 40.5]
    now += 4 * LONG.forget_s
    kept.look(BAD, now)
    assert recover() == 5.5
