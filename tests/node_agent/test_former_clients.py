"""What former clients may still hold: the sum is right, and a step costs the same however many there are."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.node_agent.clients import credit
from orion.node_agent.clients.former_clients import FormerClients
from orion.node_agent.processes.liveness import Program
from tests.node_agent.credit_slots import Slots

Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(("leave", "join", "look")), st.integers(0, 25), st.integers(1, 2), st.integers(0)),
    max_size=50,
)


class Ended:
    """Says which processes have ended, and notes at which programs it has looked."""

    def __init__(self, process_ids: set[int]) -> None:
        self.process_ids, self.seen = process_ids, list[Program]()

    def __call__(self, program: Program) -> bool:
        self.seen.append(program)
        return program.process_id in self.process_ids


@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(1, 4))
def test_the_running_sum_is_the_sum_of_what_each_former_client_holds(steps: list[Step], one_of: int) -> None:
    ended = set(range(0, 100, one_of))
    listed = set(range(0, 100, 3))
    former, plain, waits = FormerClients(), dict[Program, int](), set[Program]()
    for what, first, stack, mib in steps:
        if what == "leave":  # many at once, so that a look does not reach all
            programs = [Program(process_id, 1, stack) for process_id in range(first, 2 * first + 1)]
            for program in programs:
                former.add(program, mib + program.process_id)
            plain |= {program: mib + program.process_id for program in programs}
        elif what == "join":
            former.forget_process(first)
            plain = {each: held for each, held in plain.items() if each.process_id != first}
        else:
            has_ended = Ended(ended)
            former.look(has_ended, lambda program: program.process_id in listed)
            assert has_ended.seen == list(plain)[:16]
            looked_at = [(each, plain.pop(each)) for each in has_ended.seen]
            plain |= {each: held for each, held in looked_at if each.process_id not in ended - listed}
            waits |= {each for each, _ in looked_at if each.process_id in ended & listed}
        waits &= plain.keys()
        assert former.ended_mib(0) == sum(plain[each] for each in waits)
        assert (former.sum_mib, len(former)) == (sum(plain.values()), len(plain))
        assert former._of_process.keys() == {each.process_id for each in plain}


class Counted(Program):
    """A program that counts each look at one of its fields."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        Counted.looks += 1
        return super().__getattribute__(name)


class Figure(int):
    """A number of MiB that counts each sum with it."""

    def __add__(self, other: int) -> "Figure":
        Counted.looks += 1
        return Figure(int(self) + other)

    __radd__ = __add__


def looks_with(former: int, step: Callable[[Slots, Any], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often a step looks at so many former clients whose processes live on."""
    for what in ("has_ended", "ends"):
        monkeypatch.setattr(credit, what, lambda program: program.process_id < 0)
    slots = Slots()
    asker = slots.join(0)
    for process_id in range(former):
        client = slots.join(Figure(1), process_id=10**9 + process_id)
        client.program = Counted(client.process_id, 1, 1)
        del slots.clients[1]
        slots.credit.left(client)
    assert slots.used() == former
    Counted.looks = 0
    step(slots, asker)
    return Counted.looks


def leave(slots: Slots, asker: Any) -> None:
    asker.program = Program.of(os.getpid())
    slots.clients.clear()
    slots.credit.left(asker)


@pytest.mark.parametrize(
    "step",
    [lambda slots, asker: slots.credit.asked(asker, 10), lambda slots, _: slots.credit.look(), leave],
    ids=["wish", "look", "leave"],
)
def test_a_step_costs_the_same_however_many_former_clients_live_on(
    step: Callable[[Slots, Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = looks_with(50, step, monkeypatch)
    assert few > 0
    assert looks_with(400, step, monkeypatch) == few
