"""Shares of each second with kernels of some milliseconds, which run on after a turn and are reported when they end."""

import random
from dataclasses import dataclass, field
from functools import cache

import pytest

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.busy_union import merged
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
    ran_on_ns: int = 0
    used: list[int] = field(default_factory=lambda: [0])

    def demand(self, now: int) -> Demand:
        reported, self.reported_ns = round(self.reported_ns * self.honesty), 0
        ran_on, self.ran_on_ns = (self.ran_on_ns, 0) if self.left_ns <= 0 else (0, self.ran_on_ns)
        works = now >= self.pauses_until_ns
        return Demand(
            self.request, self.limit, reported, self.kernel_ns, works, works, ceiling=self.limit, ran_on_ns=ran_on
        )

    def works(self, plan: Plan | None, now: int, is_open: bool) -> bool:
        """Return whether it has work on the GPU; begin a kernel if its valve is open (hook/src/be/turns.c)."""
        if self.left_ns > 0:
            return True
        if now < self.pauses_until_ns or not is_open:
            return False
        if plan is not None and (not plan.has_turn(now) or plan.begun(now - HANDOVER_NS, now + 1)):
            return False
        if plan is not None and not plan.has_turn(now + min(self.kernel_ns // 2, turn_ns(plan, now) * 3 // 4)):
            return False
        self.left_ns = self.kernel_ns or STEP_NS
        return True

    def compute(self, now: int, in_turn: bool) -> None:
        self.ran_on_ns += 0 if in_turn else STEP_NS
        self.used.append(self.used[-1] + STEP_NS)
        self.left_ns -= STEP_NS
        if self.left_ns <= 0:
            self.reported_ns += self.kernel_ns or STEP_NS
            self.pauses_until_ns = now + self.pause_ns


@dataclass
class Hp:
    """hp has work about so often; be begins no kernel meanwhile. 0: never."""

    work_ns: int = 0
    every_ns: int = MS
    left_ns: int = 0
    next_ns: int = 0
    closed: list[tuple[int, int]] = field(default_factory=list)

    def works(self, now: int, dice: random.Random) -> bool:
        if self.work_ns and self.left_ns <= 0 and now >= self.next_ns:
            self.left_ns, self.next_ns = self.work_ns, now + dice.randrange(self.every_ns // 2, self.every_ns * 3 // 2)
        return self.left_ns > 0

    def compute(self, works: bool, time_ns: int, now: int) -> None:
        self.left_ns -= time_ns
        if works:
            self.closed.append((now, now + STEP_NS))

    def closed_since(self, since: int, now: int) -> list[tuple[int, int]]:
        found, self.closed = merged(self.closed), []
        assert not found or since <= found[0][0] < found[-1][1] <= now
        return found


def run(tenants: dict[str, Tenant], seconds: int, hp: Hp | None = None) -> None:
    """Let the tenants and hp use a GPU that gives time slices to those that have work at the same time."""
    turns, dice, hp = Turns(), random.Random(1), hp or Hp()
    now = looked = next_look = 1_000_000 * MS
    holder, since = "", 0
    pausing = {name: each for name, each in tenants.items() if each.pause_ns}
    for _ in range(seconds * SECOND):
        if now >= next_look:
            closed = hp.closed_since(looked, now)
            left = 1 - sum(end - begin for begin, end in closed) / max(1, now - looked)
            turns.look(now, left, {name: each.demand(now) for name, each in tenants.items()}, closed=closed)
            looked, next_look = now, now + 25 * MS + dice.randrange(3 * MS)
        for name, each in pausing.items():
            _tell(turns, name, each, now)
        waits, plans = hp.works(now, dice), turns.plans
        working = [name for name, each in tenants.items() if each.works(plans.get(name), now, not waits)]
        working += ["hp"] * waits
        if working and (holder not in working or now - since >= SLICE_NS):
            after = working.index(holder) + 1 if holder in working else 0
            holder, since = working[after % len(working)], now
        for name, each in tenants.items():
            if working and name == holder:
                plan = plans.get(name)
                each.compute(now, plan is None or plan.has_turn(now))
            else:
                each.used.append(each.used[-1])
        hp.compute(waits, STEP_NS if waits and holder == "hp" else 0, now)
        now += STEP_NS


def _tell(turns: Turns, name: str, tenant: Tenant, now: int) -> None:
    """Let a slot that pauses hand back its turn, and ask for one when it has work again."""
    plan = turns.plans.get(name)
    if plan is None or tenant.left_ns > 0:
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


@pytest.mark.parametrize("hp", [(MS // 5, 8 * MS), (MS, 8 * MS), (5 * MS, 20 * MS)])
@pytest.mark.parametrize(
    ("kernels_us", "most"),
    [
        ((0, 4600), 1.0),
        ((0, 0, 2000), 0.5),
        ((0, 10_000), 1.0),
        ((0, 1000, 4600), 1.5),
        ((4600, 4600), 1.0),
        ((0, 45_000), 3.5),
    ],
)
def test_what_runs_on_while_hp_waits_for_it_is_its_slots(
    kernels_us: tuple[int, ...], most: float, hp: tuple[int, int]
) -> None:
    off = [100 * (share - 1 / len(kernels_us)) for share in _beside_hp(kernels_us, hp)]
    assert max(map(abs, off)) < most, off


@pytest.mark.parametrize("honesty", [2.0, 1e9])
@pytest.mark.parametrize("kernels_us", [(0, 0, 4600), (0, 10_000)])
def test_a_slot_that_reports_too_much_beside_hp_takes_nothing_from_others(
    kernels_us: tuple[int, ...], honesty: float
) -> None:
    shares = _beside_hp(kernels_us, (MS, 8 * MS), honesty)
    assert min(shares[:-1]) > 1 / len(shares) - 0.01


def _beside_hp(kernels_us: tuple[int, ...], hp: tuple[int, int], of_the_last: float = 1.0) -> list[float]:
    tenants = {f"be-{index}": Tenant(length * 1_000) for index, length in enumerate(kernels_us)}
    tenants[f"be-{len(kernels_us) - 1}"].honesty = of_the_last
    run(tenants, 12, Hp(*hp))
    used = [each.used[-1] - each.used[2 * SECOND] for each in tenants.values()]
    return [each / sum(used) for each in used]


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


@pytest.mark.parametrize(
    ("kernel_ms", "limit", "limited_ms"),
    [(7, 0.05, 0), (11, 0.05, 0), (20, 0.05, 0), (11, 0.3, 0), (15, 0.3, 3), (8, 0.2, 5), (20, 0.5, 0)],
)
def test_beside_a_slot_with_a_limit_turns_of_whole_pieces_leave_no_gap(
    kernel_ms: int, limit: float, limited_ms: int
) -> None:
    """The cycle is as short as its turns, and the limit holds there, too."""
    tenants = {"a": Tenant(kernel_ms * MS), "b": Tenant(limited_ms * MS, limit=limit)}
    run(tenants, 10)
    free, limited = ((each.used[-1] - each.used[2 * SECOND]) / (8_000 * MS) for each in tenants.values())
    assert limited == pytest.approx(limit, rel=0.1)
    assert free + limited > 0.94  # handovers take 0.02 to 0.04


@pytest.mark.parametrize(
    "tenants",
    [
        [Tenant(8 * MS, limit=0.5), Tenant(0, limit=0.2), Tenant(MS, limit=0.3)],
        [Tenant(8 * MS, limit=0.5), Tenant(0, limit=0.5)],
        [Tenant(11 * MS, limit=0.5), Tenant(3 * MS, limit=0.5)],
    ],
)
def test_limits_that_are_the_whole_gpu_together_leave_no_gap(tenants: list[Tenant]) -> None:
    run(dict(zip("abc", tenants, strict=False)), 10)
    assert sum(each.used[-1] - each.used[2 * SECOND] for each in tenants) > 0.94 * 8_000 * MS


@pytest.mark.parametrize(("kernel_ms", "limit"), [(45, 0.3), (80, 0.3), (80, 0.5), (500, 0.5)])
def test_a_slot_whose_pieces_fit_into_no_turn_pays_its_debt_to_one_with_a_limit(kernel_ms: int, limit: float) -> None:
    """Before that, what the limit leaves is not its, as its pieces would run on into the turns of the other slot."""
    tenants = {"a": Tenant(kernel_ms * MS), "b": Tenant(0, limit=limit)}
    run(tenants, 14)
    assert tenants["b"].used[-1] - tenants["b"].used[2 * SECOND] > 0.7 * limit * 12_000 * MS


@pytest.mark.parametrize("neighbours", [{}, {"b": 0}])
def test_what_runs_on_while_hp_waits_for_it_counts_for_a_limit(neighbours: dict[str, int]) -> None:
    limited = Tenant(2 * MS, limit=0.3)
    run({"a": limited} | {name: Tenant(kernel_ns) for name, kernel_ns in neighbours.items()}, 10, Hp(MS // 5, 8 * MS))
    assert 0.27 < (limited.used[-1] - limited.used[2 * SECOND]) / (8_000 * MS) < 0.302
