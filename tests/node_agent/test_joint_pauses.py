"""Jobs that use several GPUs, whose work or neighbours pause: do they still have the turn on all GPUs at once?"""

from collections.abc import Iterator, Mapping

import pytest

from orion.node_agent.sharing.demand import Demand
from tests.node_agent.joint_node import MS, STEP_NS, Node, begin, parts, shares, stop


class Working(Node):
    """Slots report what they did since the last check, also if they pause at the moment of the check."""

    def __init__(self, *requests: dict[str, float], jobs: Mapping[str, str] = {"be-0": "job"}) -> None:
        super().__init__(*requests, jobs=jobs)
        self.worked: dict[tuple[int, str], int] = {}
        self.runs_on: dict[str, float] = {}
        """ By slot: how much more it reports than the time of its turns, with pieces of 30 ms. """

    def demand(self, number: int, name: str, request: float) -> Demand:
        worked = self.worked.pop((number, name), 0)
        waits = (number, name) not in self.idle
        demand = Demand(request, launched=waits or worked > 0, waiting=waits)
        if name in self.runs_on:
            demand = demand._replace(piece_ns=30 * MS, reported_ns=round(self.runs_on[name] * worked))
        return demand

    def progresses(self, number: int, name: str) -> bool:
        return (number, name) in self.worked or (number, name) not in self.idle

    def run(self, seconds: float) -> Iterator[list[set[str]]]:
        for now in super().run(seconds):
            for number, names in enumerate(now):
                for name in names:
                    if (number, name) not in self.idle:
                        self.worked[number, name] = self.worked.get((number, name), 0) + STEP_NS
            yield now


JOBS = {"a": "first", "b": "second"}


def together(node: Node, seconds: float, toggled: int = 0) -> tuple[float, float]:
    """Return for which part of the time b has the turn on both of its GPUs, and on any; x pauses each so many ms."""
    both = one = steps = 0
    for now in node.run(seconds):
        count = sum("b" in holders for holders in now)
        both, one, steps = both + (count == 2), one + (count > 0), steps + 1
        milliseconds, rest = divmod(node.now, MS)
        if toggled and not rest and milliseconds % toggled == 0:
            (stop if milliseconds // toggled % 2 else begin)(node, 1, "x")()
    return both / steps, one / steps


@pytest.mark.parametrize("toggled", [100, 200, 500])
def test_a_job_keeps_one_window_on_all_gpus_while_a_neighbour_pauses(toggled: int) -> None:
    node = Working({"a": 0.0, "p": 0.0}, {"a": 0.0, "b": 0.0, "x": 0.0}, {"b": 0.0, "y": 0.0}, jobs=JOBS)
    parts(node, 1.0, {}, 1)
    both, one = together(node, 5.0, toggled)
    assert both > 0.38
    assert both > 0.98 * one


@pytest.mark.parametrize("check_ms", [25, 70])
@pytest.mark.parametrize("runs_on", [1.0, 1.5, 3.0])
def test_a_job_keeps_its_window_while_another_job_forgoes_windows(runs_on: float, check_ms: int) -> None:
    node = Working({"a": 0.0, "x": 0.0}, {"a": 0.0, "b": 0.0}, {"b": 0.0, "y": 0.0}, jobs=JOBS)
    node.runs_on, node.check_ns = {"a": runs_on}, check_ms * MS
    parts(node, 1.0, {}, 1)
    assert together(node, 6.0)[0] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(("work_ms", "host_ms", "steps"), [(5, 10, 230), (10, 2, 190), (20, 12, 105), (30, 10, 60)])
def test_a_job_that_works_and_pauses_in_turn_goes_on_in_its_window(work_ms: int, host_ms: int, steps: int) -> None:
    """In each step it works on both GPUs, and then its processes compute. After up to 8 ms it hands back.

    If its window began again in the next joint cycle only, it would have 125, 125, 95 and 60 steps in 5 s.
    """
    node = Working({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    left, pauses_at, handed_back, done = work_ms * MS, 0, False, 0
    for now in node.run(5.0):
        paused = node.now - pauses_at if pauses_at else 0
        if not pauses_at and all("be-0" in holders for holders in now):
            left -= STEP_NS
            if left <= 0:
                done, pauses_at, handed_back = done + 1, node.now, False
                node.idle |= {(0, "be-0"), (1, "be-0")}
        elif paused >= min(8, host_ms / 2) * MS and not handed_back:
            handed_back = True
            for number in (0, 1):
                stop(node, number, "be-0")()
        elif paused >= host_ms * MS:
            left, pauses_at = work_ms * MS, 0
            for number in (0, 1):
                begin(node, number, "be-0")()
    assert done >= steps


@pytest.mark.parametrize(("works_ms", "pauses_ms"), [(90, 30), (200, 50), (55, 15)])
def test_a_job_owes_nothing_for_windows_from_before_it_handed_back(works_ms: int, pauses_ms: int) -> None:
    node = Working({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    parts(node, 1.0, {}, 1)
    debts = []
    for _ in node.run(4.0):
        milliseconds, rest = divmod(node.now, MS)
        if not rest and milliseconds % (works_ms + pauses_ms) in (0, works_ms):
            for number in (0, 1):
                (stop if milliseconds % (works_ms + pauses_ms) else begin)(node, number, "be-0")()
        debts += [turns.accounts["be-0"].debt_ns for turns in node.turns]
    assert max(debts) < 10 * MS


def test_a_debt_where_a_job_has_no_work_stops_it_nowhere() -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    shares(node)
    node.turns[0].accounts["be-0"].balance_ns = -1_500.0 * MS
    stop(node, 0, "be-0")()
    parts(node, 0.3, {}, 1)
    assert parts(node, 3.0, {}, 1)[1]["be-0"] == pytest.approx(0.5, abs=0.03)


def test_a_job_that_pauses_at_each_check_keeps_its_window() -> None:
    """Its GPUs have different neighbours, so turns that are not agreed on do not coincide."""
    node = Working({"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    parts(node, 1.0, {}, 1)
    both = one = 0
    for now in node.run(4.0):
        milliseconds, rest = divmod(node.now, MS)
        at = (milliseconds - node.looked // MS) % 70
        if not rest and at in (1, 64):
            for number in (0, 1):
                (begin if at == 1 else stop)(node, number, "be-0")()
        count = sum("be-0" in holders for holders in now)
        both, one = both + (count == 2), one + (count > 0)
    assert both > 0.9 * one
