"""The lengths of turns: as set, and without an effect on the shares."""

import pytest

from orion.node_agent.sharing.demand import Demand
from orion.node_agent.sharing.turn_lengths import TurnLengths
from orion.node_agent.sharing.turns import Turns

MS = 1_000_000
LOOK_NS = 50 * MS
VARIED = 0.16
""" Cycles vary by up to this part, and corrections come on top. """


def planned(
    lengths: TurnLengths, requests: list[float], seconds: float = 30, together: bool = False, piece_ns: int = 0
) -> tuple[list[float], list[float]]:
    """Let slots that always work share a GPU; return their shares, and the lengths of all planned turns in ms."""
    turns, used, now = Turns(lengths), [0.0] * len(requests), 1_000 * MS
    names, found = [f"be-{index}" for index in range(len(requests))], []
    gained = [0] * len(requests)
    for _ in range(round(seconds * 1e9 / LOOK_NS)):
        turns.look(
            now,
            1.0,
            {
                name: Demand(request, 1.0, gained[index], piece_ns, launched=True, waiting=True)
                for index, (name, request) in enumerate(zip(names, requests, strict=True))
            },
            together,
        )
        gained = [turns.plans[name].time(now, now + LOOK_NS) if name in turns.plans else 0 for name in names]
        used = [before + each for before, each in zip(used, gained, strict=True)]
        found += [(end - begin) / MS for begin, end in (plan.next for plan in turns.plans.values()) if end > begin]
        now += LOOK_NS
    return [each / sum(used) for each in used], sorted(found)


@pytest.mark.parametrize(
    ("lengths", "requests", "usual_ms"),
    [
        pytest.param(TurnLengths(), [0.5, 0.5], 10, id="a cycle of 20 ms"),
        pytest.param(TurnLengths(), [0.1] * 8, 5, id="many slots"),
        pytest.param(TurnLengths(longest_ns=50 * MS), [0.5, 0.5], 50, id="long turns"),
        pytest.param(TurnLengths(longest_ns=100 * MS), [0.2] * 5, 100, id="long turns of many"),
        pytest.param(TurnLengths(longest_ns=5 * MS), [0.5, 0.5], 5, id="short turns"),
        pytest.param(TurnLengths(shortest_ns=50 * MS), [0.5, 0.5], 65, id="only the shortest"),
    ],
)
def test_turns_of_equal_slots_are_as_long_as_set(lengths: TurnLengths, requests: list[float], usual_ms: float) -> None:
    shares, found = planned(lengths, requests)
    assert found[len(found) // 2] == pytest.approx(usual_ms, rel=VARIED)
    assert shares == pytest.approx([1 / len(requests)] * len(requests), abs=0.01)


@pytest.mark.parametrize(
    ("lengths", "requests", "piece_ns", "usual_ms"),
    [
        pytest.param(TurnLengths(), [0.5, 0.5], 0, 14, id="a cycle of 28 ms"),
        pytest.param(TurnLengths(), [0.1] * 8, 0, 5, id="many slots"),
        pytest.param(TurnLengths(), [0.5, 0.5], MS, 14, id="pieces"),
        pytest.param(TurnLengths(longest_ns=50 * MS), [0.5, 0.5], 0, 50, id="as set"),
    ],
)
def test_turns_are_longer_where_contexts_run_together(
    lengths: TurnLengths, requests: list[float], piece_ns: int, usual_ms: float
) -> None:
    shares, found = planned(lengths, requests, together=True, piece_ns=piece_ns)
    assert found[len(found) // 2] == pytest.approx(usual_ms, rel=VARIED)
    assert shares == pytest.approx([1 / len(requests)] * len(requests), abs=0.01)


def test_the_slot_that_is_due_the_most_has_the_longest_turn() -> None:
    shares, found = planned(TurnLengths(longest_ns=40 * MS), [0.8, 0.2])
    assert shares == pytest.approx([0.8, 0.2], abs=0.01)
    assert found[3 * len(found) // 4] == pytest.approx(40, rel=VARIED)
    assert found[len(found) // 4] == pytest.approx(10, rel=VARIED)


def test_a_slot_that_is_due_less_than_the_shortest_turn_has_turns_less_often() -> None:
    shares, found = planned(TurnLengths(shortest_ns=20 * MS), [0.9, 0.1])
    assert found[0] > 18
    assert shares == pytest.approx([0.9, 0.1], abs=0.02)


def test_the_longest_turns_that_can_be_set_keep_the_shares() -> None:
    shares, _ = planned(TurnLengths(50 * MS, 100 * MS), [0.6, 0.3, 0.1], seconds=60)
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.02)


def test_with_limits_alone_cycles_do_not_grow_without_bound() -> None:
    turns, demand = (
        Turns(TurnLengths(longest_ns=100 * MS)),
        Demand(limit=0.01, ceiling=0.01, launched=True, waiting=True),
    )
    turns.look(1_000 * MS, 1.0, {"be-0": demand})
    assert turns.plans["be-0"].cycle_ns < 300 * MS
