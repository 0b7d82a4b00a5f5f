"""Graphs of be clients: the program notices nothing of the pieces, some graphs run whole, and nobody hangs."""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.hook.graph_of_be import (
    A_LAUNCH,
    ANOTHER,
    CHANGES,
    IN_EXECUTABLE,
    IN_GENERAL,
    IN_GRAPH,
    KINDS,
    NOTHING,
    SOME,
    SWITCHES,
    WHOLE,
    Pair,
    launches_own,
    make,
    own,
    until_in_pieces,
    until_whole,
)
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import (
    DEADLINE,
    LONG_ENOUGH_TO_SEE,
    MILLISECOND,
    Answer,
    Client,
    busy,
    eventually,
)

# -- What the program gets ---------------------------------------------------------------------------------------------


STUCK_S = 1.0
""" If the GPU completes nothing for so long, the hook takes a graph for one that waits for its program, and launches it
whole from then on. The simulated GPU also stands still on a machine that lets none of its threads run. """


@dataclass
class Outcomes:
    """What graphs have written, for each way to change parameters and each number of streams."""

    written: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    longest_s: float = 0.0
    """ The longest time for which launches of the last graph took. """


def outcomes(client: Client, kind: str) -> Outcomes:
    found = Outcomes()
    for change in CHANGES:
        if kind in WHOLE and change == ANOTHER:
            continue  # the driver refuses: the other graph has an allocation or a condition of its own, or no flag
        make(client, kind, SOME)
        found.longest_s = 0.0
        for streams in (-1, 1, 3):
            found.longest_s = max(found.longest_s, client.must(f"play 5 {streams} {change}").seconds)
            found.written[change, streams] = client.must("written").more
    return found


def keeps_to_pieces(hp: Client, be: Client, kind: str, wanted: Outcomes) -> bool:
    """Let be play graphs beside hp; return whether the last one was in pieces, if it could be. Else it was stuck."""
    hp.send("serve 400 300 5000 1")
    found = outcomes(be, kind)
    assert found.written == wanted.written
    began = time.monotonic()
    as_expected = launches_own(be) == (2 if kind in WHOLE else 0)
    longest_s = max(found.longest_s, time.monotonic() - began)
    assert as_expected or longest_s > STUCK_S, "the last launches were in pieces, if they could be"
    be.must("written")  # empties the log
    hp.answer()
    return as_expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_writes_what_it_writes_without_the_hook(pair: Pair, machine: Machine, kind: str) -> None:
    plain = machine.start_in(None)
    plain.must("init 0")
    wanted = outcomes(plain, kind)
    plain.close()
    for (change, _), written in wanted.written.items():
        assert len(written) >= 2 + 5 * (20 if change == SWITCHES else 40)
    hp, be = pair
    eventually(lambda: keeps_to_pieces(hp, be, kind, wanted), "the GPU does not stand still", DEADLINE)
    assert outcomes(hp, kind).written == wanted.written


@pytest.mark.parametrize("streams", [-1, 1, 2])
def test_branches_keep_their_order(pair: Pair, streams: int) -> None:
    hp, be = pair
    hp.send("serve 200 300 5000 1")
    make(be, "nodes", "42 50", branches=4)
    for change in (NOTHING, IN_GRAPH, IN_EXECUTABLE, IN_GENERAL, ANOTHER):
        be.must(f"play 5 {streams} {change}")
        written = [int(number) for number in be.must("written").more[2:]]
        assert len(written) == 5 * 42
        for launch, begin in enumerate(range(0, 5 * 42, 42)):
            assert {number // A_LAUNCH for number in written[begin : begin + 42]} == {launch if change else 0}
            kernels = [number % A_LAUNCH for number in written[begin : begin + 42]]
            assert sorted(kernels) == list(range(42))
            assert (kernels[0], kernels[-1]) == (0, 41)
            branches = defaultdict(list)
            for kernel in kernels[1:-1]:
                branches[kernel % 4].append(kernel)
            assert all(a < b for branch in branches.values() for a, b in pairwise(branch))
    hp.answer()


def test_a_graph_may_be_destroyed_before_its_launches_and_an_executable_during_them(
    pair: Pair,
) -> None:
    hp, be = pair
    for _ in range(3):
        make(be, "hosts", SOME)
        be.must("play 10 -1")
        before = be.must("written")
        be.must("unmake 2")
        with busy(hp, 50):
            be.send("play 3 2\nunmake 1\nwritten")
        for _ in range(2):
            assert be.answer().result == 0
        once = [float(kernel) for kernel in range(40) for _ in range(2 if kernel % 8 == 7 else 1)]
        assert be.answer().more[2:] == once * 3
        assert before.more[2:] == once * 10


# -- Which graphs run whole --------------------------------------------------------------------------------------------


def test_a_graph_runs_in_pieces_only_while_the_gpu_has_an_hp_client(machine: Machine) -> None:
    be = machine.start("be-0")
    make(be)
    assert launches_own(be, 5) == 5
    hp = machine.start("hp-0")
    until_in_pieces(be)
    hp.close()
    until_whole(be)


def test_a_short_graph_runs_whole(pair: Pair) -> None:
    _, be = pair
    make(be, "nodes", "4 20")
    be.must("play 5 -1")
    # A measurement can be far too long: it contains the time for which the program lost its CPU between the event and
    # the launch. The graph then runs in pieces until these prove short.
    eventually(lambda: launches_own(be, 10) == 10, "the graph runs whole", DEADLINE)


def test_the_graphs_of_hp_run_whole(pair: Pair) -> None:
    hp, be = pair
    be.send("loop 1 100 1")
    make(hp)
    assert launches_own(hp, 20) == 20
    be.answer()


@pytest.mark.parametrize("kind", WHOLE)
def test_a_graph_that_cannot_be_copied_runs_whole(pair: Pair, kind: str) -> None:
    hp, be = pair
    make(be, kind, log=False)
    assert launches_own(be, 5) == 5
    with busy(hp, 30) as launched:
        be.send("play 1 -1")
    answer = be.answer()
    assert answer.result == 0
    assert answer.ended >= launched.began + 30 * MILLISECOND, "it waits at the gate"
    assert own(be) == 6


def test_a_long_graph_that_cannot_be_copied_is_reported(pair: Pair, machine: Machine) -> None:
    _, be = pair
    make(be, "allocates", log=False)

    def said() -> int:
        be.must("play 5 -1")
        return sum("cannot be stopped in between" in line for line in be.said)

    assert eventually(said, "the hook says so") == 1
    assert said() == 1, "once"

    def reasons() -> list[str]:
        shown = machine.shown(be)
        return [condition.reason for condition in shown.conditions] if shown else []

    eventually(lambda: "LongKernels" in reasons(), "the agent reports the graph", DEADLINE)


# -- Ends --------------------------------------------------------------------------------------------------------------


def all_of_it(launches: int) -> list[float]:
    return [float(kernel) for kernel in range(200)] * launches


def test_nobody_hangs_when_be_is_killed_in_a_graph(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    other = machine.start("be-1")
    make(other)
    for _ in range(3):
        make(be)
        be.must("play 2 -1")
        with busy(hp, LONG_ENOUGH_TO_SEE):
            be.send("play 20 2")
            machine.until(be, "gated")
            be.kill()
        be.reap()
        machine.until(be, "")
        assert hp.must("run 1 1000").seconds < 5
        other.must("play 1 -1")
        assert other.must("written").more[2:] == all_of_it(1)
        be = machine.start("be-0")


def test_a_graph_goes_on_when_hp_is_killed(machine: Machine) -> None:
    be = machine.start("be-0")
    make(be)
    for _ in range(3):
        hp = machine.start("hp-0")
        machine.until_known(hp, be)
        be.must("play 3 -1")
        be.must("written")
        hp.must("launch 30 100000")  # the hook gives up an hp that completes nothing for a second
        be.send("play 4 2")
        machine.until(be, "gated")
        hp.kill()
        hp.reap()
        assert be.answer().result == 0
        assert be.must("written").more[2:] == all_of_it(4)


def test_a_context_with_a_graph_that_waits_can_end(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    for _ in range(3):
        make(be)
        be.must("play 3 -1")
        with busy(hp, LONG_ENOUGH_TO_SEE):
            be.send("play 1\nreset")
            machine.until(be, "gated")
        for _ in range(2):
            assert be.answer().result == 0
        make(be)
        be.must("play 1 -1")
        be.do("written")  # what ran before the reset, too
        be.must("play 2 2")
        assert be.must("written").more[2:] == all_of_it(2)
    be.must("run 1 10")


def test_a_graph_goes_on_while_the_agent_restarts(pair: Pair, machine: Machine) -> None:
    hp, be = pair
    make(be)
    be.must("play 3 -1")
    be.must("written")
    be.send("play 20 2")
    machine.kill_agent()
    answers: list[Answer] = [hp.must("run 1 1000") for _ in range(5)]
    machine.start_agent()
    machine.until_joined(hp, be)
    answers += [hp.must("run 1 1000") for _ in range(5)]
    assert all(answer.seconds < 5 for answer in answers)
    assert be.answer().result == 0
    assert be.must("written").more[2:] == all_of_it(20)


def test_pieces_run_ahead_after_a_module_was_unloaded(pair: Pair) -> None:
    hp, be = pair
    hp.must("run 1 300 1")
    make(be, "nodes", SOME)
    until_in_pieces(be)
    be.must("code 5")

    def waits() -> int:
        before = record_word(be, "window_waits")
        be.must("play 1 -1")
        return record_word(be, "window_waits") - before

    eventually(
        lambda: waits() == 0, "the hook launches a graph of five windows without waiting for its pieces", DEADLINE
    )
