"""Shares of each second with kernels of some milliseconds, which run on after a turn and are reported when they end."""

import random
from dataclasses import dataclass, field
from functools import cache

import pytest

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.turns import Turns

MS = 1_000_000
STEP_NS = MS // 10
HANDOVER_NS = 2 * STEP_NS
SLICE_NS = 2 * MS
SECOND = 1_000 * MS // STEP_NS


def turn_ns(plan: Plan, now: int) -> int:
    """Return the length of the turn under way; in a quarter of it a client may begin kernels of any length."""
    begin, end = plan.turn if now < plan.turn[1] else plan.next
    return end - begin


@dataclass
class Tenant:
    """A slot that always has work, in kernels of that length; 0: so short that they end with the turn."""

    kernel_ns: int
    honesty: float = 1.0
    """ The part of its GPU time that it reports. """
    request: float = 0.0
    limit: float = 1.0
    pause_ns: int = 0
    """ For so long it has no work after each kernel. """
    pauses_until_ns: int = 0
    left_ns: int = 0
    reported_ns: int = 0
    used: list[int] = field(default_factory=lambda: [0])

    def demand(self, now: int) -> Demand:
        reported, self.reported_ns = round(self.reported_ns * self.honesty), 0
        works = now >= self.pauses_until_ns
        return Demand(self.request, self.limit, reported, self.kernel_ns, works, works, ceiling=self.limit)

    def works(self, plan: Plan | None, now: int) -> bool:
        """Return whether it has work on the GPU; begin a kernel if its valve is open (hook/src/be/turns.c)."""
        if self.left_ns > 0:
            return True
        if now < self.pauses_until_ns:
            return False
        if plan is not None and (not plan.has_turn(now) or plan.begun(now - HANDOVER_NS, now + 1)):
            return False
        if plan is not None and not plan.has_turn(now + min(self.kernel_ns // 2, turn_ns(plan, now) * 3 // 4)):
            return False
        self.left_ns = self.kernel_ns or STEP_NS
        return True

    def compute(self, time_ns: int, now: int) -> None:
        self.used.append(self.used[-1] + time_ns)
        self.left_ns -= time_ns
        if time_ns and self.left_ns <= 0:
            self.reported_ns += self.kernel_ns or STEP_NS
            self.pauses_until_ns = now + self.pause_ns


def run(tenants: dict[str, Tenant], seconds: int) -> None:
    """Let the tenants use a GPU that gives time slices to those that have work at the same time."""
    turns, dice = Turns(), random.Random(1)
    now = next_look = 1_000_000 * MS
    holder, since = "", 0
    for _ in range(seconds * SECOND):
        if now >= next_look:
            turns.look(now, 1.0, {name: each.demand(now) for name, each in tenants.items()})
            next_look = now + 25 * MS + dice.randrange(3 * MS)
        for name, each in tenants.items():
            _tell(turns, name, each, now)
        working = [name for name, each in tenants.items() if each.works(turns.plans.get(name), now)]
        if working and (holder not in working or now - since >= SLICE_NS):
            after = working.index(holder) + 1 if holder in working else 0
            holder, since = working[after % len(working)], now
        for name, each in tenants.items():
            each.compute(STEP_NS if working and name == holder else 0, now)
        now += STEP_NS


def _tell(turns: Turns, name: str, tenant: Tenant, now: int) -> None:
    """Let a slot that pauses hand back its turn, and ask for one when it has work again."""
    plan = turns.plans.get(name)
    if plan is None or not tenant.pause_ns or tenant.left_ns > 0:
        return
    if now < tenant.pauses_until_ns:
        turns.hand_back(name, now)
    elif not plan.has_turn(now):
        turns.ask(name, now)


@pytest.mark.parametrize(
    "kernels_ms",
    [
        (0, 7),
        (0, 10),
        (0, 15),
        (0, 20),
        (0, 0, 5),
        (0, 3, 5),
        (0, 0, 0, 10),
        (5, 5),
        (10, 10),
        (0, 45),
        (0, 80),
        (0, 150),
        (0, 0, 200),
    ],
)
def test_long_kernels_keep_their_share(kernels_ms: tuple[int, ...]) -> None:
    tenants = {f"be-{index}": Tenant(length * MS) for index, length in enumerate(kernels_ms)}
    run(tenants, 8)
    used = [each.used for each in tenants.values()]
    for at in range(2 * SECOND, 7 * SECOND, SECOND // 10):
        gained = [each[at + SECOND] - each[at] for each in used]
        off = [100 * abs(each / sum(gained) - 1 / len(gained)) for each in gained]
        assert max(off) < 1.0 + max(kernels_ms) / 5, (at, off)
    whole = sum(each[-1] - each[2 * SECOND] for each in used)
    assert all(abs((each[-1] - each[2 * SECOND]) / whole - 1 / len(used)) < 0.025 for each in used)
    # Where a piece does not fit into a turn, the GPU alternates between two slots. Then the sum is about 0.9.
    assert whole > 0.94 * (8 - 2) * 1_000 * MS


@pytest.mark.parametrize("honesty", [0.0, 0.5, 2.0, 1e9])
@pytest.mark.parametrize("kernels_ms", [(0, 0, 3), (0, 3, 5), (0, 0, 8), (0, 15), (5, 5)])
def test_wrong_reports_of_pieces_that_fit_into_turns_move_no_share(kernels_ms: tuple[int, ...], honesty: float) -> None:
    assert _shares(kernels_ms, honesty) == pytest.approx(_shares(kernels_ms, 1.0), abs=1.0)


@cache
def _shares(kernels_ms: tuple[int, ...], of_the_last: float) -> list[float]:
    tenants = {f"be-{index}": Tenant(length * MS) for index, length in enumerate(kernels_ms)}
    tenants[f"be-{len(kernels_ms) - 1}"].honesty = of_the_last
    run(tenants, 8)
    used = [each.used[-1] - each.used[2 * SECOND] for each in tenants.values()]
    return [100 * each / sum(used) for each in used]


@pytest.mark.parametrize("pause_ms", [900, 1_050, 1_500])
@pytest.mark.parametrize("kernel_ms", [500, 1_000])
def test_a_slot_gains_nothing_by_pauses_after_kernels_that_ran_on(kernel_ms: int, pause_ms: int) -> None:
    assert _used(kernel_ms, pause_ms) < _used(kernel_ms, 0) + 0.03


@cache
def _used(kernel_ms: int, pause_ms: int) -> float:
    tenants = {"a": Tenant(kernel_ms * MS, request=0.1, pause_ns=pause_ms * MS), "b": Tenant(0, request=0.9)}
    run(tenants, 20)
    return tenants["a"].used[-1] / (20_000 * MS)


@pytest.mark.parametrize(("kernel_ms", "pause_ms"), [(500, 1_050), (1_000, 1_050), (1_000, 1_500)])
def test_a_limit_holds_on_average_beside_no_other_slot_if_long_kernels_come_after_pauses(
    kernel_ms: int, pause_ms: int
) -> None:
    tenant = Tenant(kernel_ms * MS, limit=0.2, pause_ns=pause_ms * MS)
    run({"a": tenant}, 20)
    assert 0.1 < tenant.used[-1] / (20_000 * MS) < 0.2 + kernel_ms / 20_000
