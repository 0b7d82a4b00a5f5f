"""A modelled GPU that slots use in turns: what each of them had in each second."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.turn_lengths import TurnLengths
from orion.node_agent.sharing.turns import Turns
from orion.node_agent.sharing.windows import CLOSED_MOST

MS = 1_000_000
STEP_NS = MS // 10
_USUAL = TurnLengths()
HANDOVER_NS = 2 * STEP_NS
""" A slot does nothing for so long after its turn has begun. """


@dataclass(eq=False)
class Tenant:
    """A slot on the modelled GPU.

    Args:
        request: the part of the time that it asks for; 0: none.
        limit: the part that it may use.
        honesty: the part of its GPU time that it reports.
        awake_ns: it works so long, then sleeps for as long; 0: it always works.
        burst_ns, pause_ns: it works until it has had the GPU for so long, then sleeps for so long.
        piece_ns: its work runs on for so long after each of its turns.
        stopped: it says that it has work, and does nothing.
        handover_ns: its turns after those of others begin so late.
    """

    request: float = 0.0
    limit: float = 1.0
    honesty: float = 1.0
    awake_ns: int = 0
    burst_ns: int = 0
    pause_ns: int = 0
    piece_ns: int = 0
    stopped: bool = False
    handover_ns: int = HANDOVER_NS
    used: list[int] = field(default_factory=lambda: [0])
    reported_ns: float = 0.0
    handed_back: bool = False
    running_until_ns: int = 0
    asleep_until_ns: int = 0
    had_ns: int = 0

    def is_awake(self, now_ns: int) -> bool:
        return now_ns >= self.asleep_until_ns and (not self.awake_ns or now_ns // self.awake_ns % 2 == 0)

    def use(self, time_ns: int, now_ns: int) -> None:
        self.used.append(self.used[-1] + time_ns)
        self.had_ns += time_ns
        if self.burst_ns and self.had_ns >= self.burst_ns:
            self.had_ns, self.asleep_until_ns = 0, now_ns + self.pause_ns

    def demand(self, now_ns: int, left: float = 1.0) -> Demand:
        total = self.used[-1] * self.honesty
        reported, self.reported_ns = int(total - self.reported_ns), total
        awake = self.is_awake(now_ns)
        worked = awake and not self.stopped
        limit = self.limit / max(self.limit, left)
        return Demand(self.request, limit, reported, self.piece_ns, worked, awake, ceiling=self.limit)


@dataclass(frozen=True)
class Hp:
    """hp on the modelled GPU: it works at the begin of each period, then lingers."""

    period_ns: int = 5 * MS
    busy_ns: int = 0
    linger_ns: int = 0

    def takes(self, now_ns: int) -> bool:
        return now_ns % self.period_ns < self.busy_ns + self.linger_ns

    def closed(self, since_ns: int, now_ns: int) -> list[tuple[int, int]]:
        """Return when be's gate was closed between two times."""
        begins = range(since_ns - since_ns % self.period_ns, now_ns, self.period_ns)
        spans = [(max(each, since_ns), min(each + self.busy_ns + self.linger_ns, now_ns)) for each in begins]
        return [(begin, end) for begin, end in spans if begin < end]


def run(
    tenants: Iterable[Tenant],
    seconds: float,
    hp: float | Hp = 0.0,
    seed: int = 1,
    check_ns: int = 0,
    lengths: TurnLengths = _USUAL,
) -> dict[str, Tenant]:
    """Let the tenants use the GPU; hp takes the first part of each 5 ms. Checks come as turns need, or as given."""
    hp = hp if isinstance(hp, Hp) else Hp(busy_ns=round(hp * 5 * MS))
    hp_part = (hp.busy_ns + hp.linger_ns) / hp.period_ns
    turns, dice = Turns(lengths), random.Random(seed)
    named = {f"be-{index}": each for index, each in enumerate(tenants)}
    now = looked = 1_000_000 * MS
    next_look, end = now, now + round(seconds * 1e9)
    while now < end:
        if now >= next_look:
            demands = {name: each.demand(now, 1 - hp_part) for name, each in named.items()}
            closed = hp.closed(looked, now)
            left = 1 - sum(end - begin for begin, end in closed) / max(1, now - looked)
            turns.look(now, left, demands, closed=closed if len(closed) <= CLOSED_MOST else ())
            looked = now
            next_look = now + (check_ns or turns.look_ns) + dice.randrange(3 * MS)
        _send_messages(turns, named, now)
        _work(named, turns.plans, now, 0 if hp.takes(now) else STEP_NS)
        now += STEP_NS
    assert looked
    return named


def _send_messages(turns: Turns, tenants: Mapping[str, Tenant], now: int) -> None:
    for name, each in tenants.items():
        awake = each.is_awake(now)
        if awake and each.handed_back:
            each.handed_back = False
            turns.ask(name, now)
        elif not awake and not each.handed_back and (plan := turns.plans.get(name)) is not None and plan.has_turn(now):
            each.handed_back = True
            turns.hand_back(name, now)


def _work(tenants: Mapping[str, Tenant], plans: Mapping[str, Plan], now: int, time_ns: int) -> None:
    working = []
    for name, each in tenants.items():
        if not each.is_awake(now):
            continue
        plan = plans.get(name)
        has_turn = plan is None or (plan.has_turn(now) and not plan.begun(now - each.handover_ns, now + 1))
        if has_turn and each.piece_ns:
            each.running_until_ns = max(each.running_until_ns, now + each.piece_ns)
        if not each.stopped and (has_turn or now < each.running_until_ns):
            working.append(each)
    for each in tenants.values():
        each.use(time_ns // len(working) if each in working else 0, now)


def shares(tenants: Mapping[str, Tenant], of_all: bool = True) -> list[list[float]]:
    """Return the parts that each tenant had in sliding windows of 1 s: of what all had, or of the time."""
    steps, skip = 1_000 * MS // STEP_NS, 2_000 * MS // STEP_NS
    starts = range(skip, len(next(iter(tenants.values())).used) - steps, 100)
    gained = [[each.used[at + steps] - each.used[at] for at in starts] for each in tenants.values()]
    whole = [sum(each) if of_all else 1_000 * MS for each in zip(*gained, strict=True)]
    return [[mine / every for mine, every in zip(each, whole, strict=True)] for each in gained]


def means(tenants: Mapping[str, Tenant], of_all: bool = True) -> list[float]:
    return [sum(each) / len(each) for each in shares(tenants, of_all)]
