"""Graphs of long kernels where contexts run together: their kernels are moved to a part of the SMs, as launches are."""

import pytest

from tests.hook.graph_of_be import ANOTHER, CHANGES, CUT, IN_GENERAL, WHOLE, launches_own, make, until_in_pieces
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import DEADLINE, Client, eventually

KERNELS = "10 1000"
""" Ten kernels of 1 ms: each is longer than the window, and has more blocks than the GPU can run at once. """


@pytest.fixture
def shared(bare_machine: Machine) -> Machine:
    """A machine whose contexts run together."""
    bare_machine.run_contexts_together()
    bare_machine.start_agent()
    return bare_machine


def moved(be: Client) -> int:
    return record_word(be, "partitioned_launches")


def until_moved(be: Client) -> None:
    def moves() -> bool:
        before = moved(be)
        be.must("play 1 -1")
        return moved(be) > before

    eventually(moves, "the hook moves the graph's kernels", DEADLINE)


def written(client: Client, kind: str) -> list[list[float]]:
    """Return what the graph has written, for each way to change its parameters and each number of streams."""
    found = []
    make(client, kind, KERNELS)
    for change in CHANGES:
        if kind in WHOLE and change == ANOTHER:
            continue
        for streams in (-1, 1, 3):
            client.must(f"play 2 {streams} {change}", 60)
            found.append(client.must("written").more)
    return found


@pytest.mark.parametrize("kind", CUT)
def test_a_graph_whose_kernels_are_moved_writes_what_it_writes_without_the_hook(shared: Machine, kind: str) -> None:
    plain = shared.start_in(None)
    plain.must("init 0")
    wanted = written(plain, kind)
    plain.close()
    shared.agent.set_policy(shared.uuids[0], policy="orion", max_slowdown=100, long_kernel_us=500)
    hp, be = shared.start("hp-0"), shared.start("be-0")
    make(be, kind, KERNELS, log=False)
    until_in_pieces(be)
    until_moved(be)
    hp.send("serve 400 300 5000 1")
    before = moved(be)
    be.must("written")  # empties the log, into which host functions have written
    assert written(be, kind) == wanted
    assert moved(be) > before
    assert be.said == []
    hp.answer()


@pytest.mark.quiet
@pytest.mark.parametrize(
    ("kind", "kernels", "are_moved"),
    [
        ("nodes", "4 5000", True),
        ("children", "4 5000", True),
        ("nodes", "40 110", False),  # four of these kernels take a little longer than the window
    ],
)
def test_a_graph_runs_beside_a_busy_hp(shared: Machine, kind: str, kernels: str, are_moved: bool) -> None:
    shared.agent.set_policy(shared.uuids[0], policy="orion", max_slowdown=100)
    hp, be = shared.start("hp-0"), shared.start("be-0")
    make(be, kind, kernels, log=False)
    until_in_pieces(be)
    be.must("play 8 -1")  # what kernels take is learnt
    before = record_word(be, "overlapped_launches"), moved(be)
    hp.send("flood 15 1000")  # never idle
    shared.until(hp, "busy")
    ran = be.must("play 1 -1", 30)
    flooded = hp.answer()
    assert ran.ended < flooded.ended
    assert record_word(be, "overlapped_launches") > before[0]
    assert (moved(be) > before[1]) == are_moved


@pytest.mark.parametrize("max_slowdown", [1.0, 100.0])
def test_time_slicing_and_no_budget_launch_pieces(machine: Machine, max_slowdown: float) -> None:
    machine.agent.set_policy(machine.uuids[0], policy="orion", max_slowdown=max_slowdown)
    machine.start("hp-0")
    be = machine.start("be-0")
    make(be, "nodes", KERNELS, log=False)
    until_in_pieces(be)
    be.must(f"play 5 -1 {IN_GENERAL}")
    assert launches_own(be) == 0
    assert moved(be) == 0
