"""How long hp waits for a graph of a be client: for a piece of it, and not for all of it."""

import random
import shutil
from collections.abc import Iterator

import pytest

from tests.hook.graph_of_be import make, until_in_pieces
from tests.hook.harness import Machine, figure, percentile
from tests.hook.scripted_client import MILLISECOND, Client, busy, eventually


@pytest.fixture
def machine_of_long_slices(bare_machine: Machine) -> Machine:
    """A machine on which only the hook stops be: a time slice is longer than any graph here."""
    shutil.rmtree(bare_machine.state, ignore_errors=True)
    bare_machine.environment["ORION_SIM_SLICE_US"] = "1000000"
    bare_machine.start_agent()
    return bare_machine


def requests_during(
    be: Client, plays: str, hp: Client, request: str, chance: random.Random, pause: tuple[float, float]
) -> list[float]:
    """Send requests to hp until be has played, with pauses of so many seconds; return how long they took, in ms."""
    be.send(plays)
    took = []
    while not be.heard_something(chance.uniform(*pause)):
        took.append(hp.must(request).seconds * 1000)
    assert be.answer().result == 0
    return took


@pytest.mark.quiet
@pytest.mark.parametrize(("kind", "branches"), [("nodes", 1), ("nodes", 4), ("captured", 1), ("children", 1)])
def test_hp_waits_for_a_piece_of_a_graph(machine_of_long_slices: Machine, kind: str, branches: int) -> None:
    # hp's kernel takes 1 ms. hp arrives at any time in a graph of 30 ms: if it waited for the graph's end, half of its
    # requests would take more than 15 ms. A piece is about as long as the window, 0.4 ms.
    hp, be = machine_of_long_slices.start("hp-0"), machine_of_long_slices.start("be-0")
    make(be, kind, f"{200 * branches} 150", branches, log=False)
    until_in_pieces(be)
    took = requests_during(be, "play 50 -1", hp, "run 1 1000", random.Random(1), (0.01, 0.03))
    figure(f"hp's request of 1 ms beside a graph of 30 ms ({kind}, {branches} branches)", took, "ms")
    assert len(took) >= 20
    assert percentile(took, 75) < 8


@pytest.mark.quiet
def test_hp_that_is_busy_most_of_the_time_does_not_wait_for_branches(machine_of_long_slices: Machine) -> None:
    # be's pieces wait for hp again and again. If a piece went behind the valve, hp would wait for be's slice of 1 s.
    hp, be = machine_of_long_slices.start("hp-0"), machine_of_long_slices.start("be-0")
    make(be, "nodes", "800 40", branches=4, log=False)
    until_in_pieces(be)
    took = requests_during(be, "play 20 -1", hp, "run 1 40000", random.Random(3), (0.001, 0.008))
    figure("hp's request of 40 ms beside a graph with branches", took, "ms")
    assert len(took) >= 20
    assert percentile(took, 90) < 80


@pytest.mark.quiet
@pytest.mark.parametrize(
    ("kind", "kernels", "streams"),
    [("decides", "8 20", 1), ("launchable", "8 20", 1), ("nodes", "40 50", 2)],
)
def test_hp_does_not_wait_for_graphs_that_wait_inside_the_driver(
    machine_of_long_slices: Machine, kind: str, kernels: str, streams: int
) -> None:
    # If the graph went behind the valve, a stream of the driver's, or the other stream in which the graph is launched,
    # would wait for the held one and keep the slice of 1 s.
    hp, be = machine_of_long_slices.start("hp-0"), machine_of_long_slices.start("be-0")
    make(be, kind, kernels, log=False)
    be.must("play 5 -1")
    took = requests_during(be, f"play 200 {streams}", hp, "run 1 20000", random.Random(4), (0.001, 0.008))
    figure(f"hp's request of 20 ms beside graphs ({kind}, {kernels})", took, "ms")
    assert len(took) >= 3
    assert percentile(took, 90) < 80


@pytest.mark.quiet
def test_little_of_a_graph_runs_while_hp_is_busy(machine: Machine) -> None:
    # Here the GPU divides its time between hp and be, so be's whole graph would run in hp's busy period of 40 ms.
    hp = machine.start("hp-0")
    trace = machine.folder / "trace"
    be = machine.start_in(machine.client_root("be-0"), ORION_SIM_TRACE=str(trace))
    be.must("init 0")
    machine.until_joined(be)
    make(be, log=False)
    until_in_pieces(be)
    be.send("play 30 -1")
    chance, periods = random.Random(2), []
    while not be.heard_something(chance.uniform(0.01, 0.03)):
        with busy(hp, 40) as launched:
            pass
        periods.append((launched.ended, launched.began + 40 * MILLISECOND))
    assert be.answer().result == 0
    last = max(end for _, end in periods)
    make(be, "nodes", "1 10")
    be.must("play 1 -1")
    eventually(lambda: any(end > last for _, end in _kernels(trace.read_text())), "the trace has been written")
    kernels = list(_kernels(trace.read_text()))
    beside = [
        sum(max(0, min(end, to) - max(start, from_)) for start, end in kernels) / MILLISECOND for from_, to in periods
    ]
    figure("be work in a busy period of hp of 40 ms", beside, "ms")
    assert len(beside) >= 10
    assert percentile(beside, 75) < 5


def _kernels(trace: str) -> Iterator[tuple[int, int]]:
    """Yield when each kernel of a trace had the GPU."""
    for line in trace.splitlines(keepends=True):
        if line.endswith("\n"):
            yield int(line.split()[1]), int(line.split()[2])
