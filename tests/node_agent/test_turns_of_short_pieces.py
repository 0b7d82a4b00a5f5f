"""Shares of each second where pieces do not fit into turns: they end too early in one turn, too late in another.

A model of clients that always have work, and stop before a turn's end as hook/src/process/plan.c says.
"""

import bisect
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from orion.node_agent.pages.plans import Plan
from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.turns import Turns
from tests.hook.harness import figure

MS = 1_000_000
SECOND, HANDOVER_NS, SECONDS = 1_000 * MS, 150_000, 20
HASH, WORD = 0x9E3779B97F4A7C15, 2**64


@dataclass
class Client:
    request: float
    piece_ns: int
    differs: bool
    """ It stops at another time before the end of each turn; else half a piece before it. """
    ends: list[int] = field(default_factory=lambda: [0])
    """ When each of its pieces was complete. """
    reported: int = 0

    def demand(self) -> Demand:
        done, self.reported = len(self.ends) - self.reported, len(self.ends)
        return Demand(self.request, 1.0, done * self.piece_ns, self.piece_ns, launched=True, waiting=True)

    def begins(self, plan: Plan, now_ns: int) -> int:
        """Return when it may launch its next piece."""
        begin, end = turn(plan, now_ns)
        part = (begin * HASH % WORD >> 56) / 512 + 0.25 if self.differs else 0.5
        return max(now_ns, begin) if now_ns < end - round(part * self.piece_ns) else turn(plan, end)[0]

    def used(self, begin_ns: int, end_ns: int) -> int:
        return (bisect.bisect(self.ends, end_ns) - bisect.bisect(self.ends, begin_ns)) * self.piece_ns


def turn(plan: Plan, now_ns: int) -> tuple[int, int]:
    """Return the turn that is not over, as the hook finds it."""
    if now_ns < plan.turn[1]:
        return plan.turn
    begin, end = plan.next
    past = max(0, (now_ns - end) // plan.cycle_ns + 1) * plan.cycle_ns
    return begin + past, end + past


def run(clients: Mapping[str, Client], look_ns: int = 0) -> Iterator[list[float]]:
    """Let the clients work; yield what each had of sliding seconds, in points. Checks come as given or needed."""
    turns, dice = Turns(), random.Random(1)
    now = began = 1_000 * SECOND
    holder = ""
    while now < began + SECONDS * SECOND:
        turns.look(now, 1.0, {name: each.demand() for name, each in clients.items()})
        look = now + (look_ns or turns.look_ns) + dice.randrange(2 * MS)
        while now < look:
            begin, name = min((each.begins(turns.plans[name], now), name) for name, each in clients.items())
            now = begin + clients[name].piece_ns + (HANDOVER_NS if name != holder else 0)
            holder = name
            clients[name].ends.append(now)
    for at in range(began + 3 * SECOND, now - SECOND, 20 * MS):
        each = [client.used(at, at + SECOND) for client in clients.values()]
        yield [100 * used / sum(each) for used in each]


def deviation(piece_ns: int, requests: tuple[float, ...], differs: bool = True, look_ns: int = 0) -> float:
    """Return by how many points shares are off at most in 95 % of all seconds."""
    clients = {f"be-{number}": Client(each, piece_ns, differs) for number, each in enumerate(requests)}
    off = [max(abs(got - 100 * each) for got, each in zip(found, requests, strict=True))
           for found in run(clients, look_ns)]  # fmt: skip
    return sorted(off)[len(off) * 95 // 100]


@pytest.mark.parametrize("requests", [(0.5, 0.5), (0.7, 0.3), (0.2,) * 5])
def test_pieces_that_do_not_fit_cancel_out_within_a_second(requests: tuple[float, ...]) -> None:
    for piece_ns in (100_000, 250_000, 400_000):
        what = f"shares off in 95 % of all seconds, requests {requests}, pieces of {piece_ns / MS} ms"
        alike = {ms: deviation(piece_ns, requests, differs=False, look_ns=ms * MS) for ms in (70, 200)}
        for ms, found in alike.items():
            figure(f"{what}, half a piece before the end of each turn, checks every {ms} ms", [found], "points")
        found = deviation(piece_ns, requests)
        figure(f"{what}, by another part of a piece in each turn, checks when turns need them", [found], "points")
        assert found < alike[70] + 0.2
