"""The GPU time that a be client reports is the time that it had the GPU, by the simulated GPU's trace."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.harness import Machine, figure, record_word
from tests.hook.scripted_client import MILLISECOND, Client, eventually, warm

pytestmark = pytest.mark.quiet

GAP_NS = 50_000
""" The hook counts shorter gaps; it may take a gap of the trace for up to twice or half as long. """
TRACED_NS = 100_000_000
""" The simulated GPU writes its trace every 20 ms. """


class Traced:
    """A be client whose work on the GPU is known."""

    def __init__(self, machine: Machine, slot: str = "be-0") -> None:
        self._trace = machine.folder / f"trace-{slot}-{machine.next_number()}"
        self.client = machine.start_in(machine.client_root(slot), ORION_SIM_TRACE=str(self._trace))
        self.client.must("init 0")
        machine.until_joined(self.client)

    def reported(self) -> int:
        return record_word(self.client, "gpu_ns")

    def of_gpu(self, began: int, ended: int) -> tuple[int, int]:
        """Return the least and the most that counts as time on the GPU in a period."""
        spans = sorted((max(span[0], began), min(span[1], ended)) for span in spans_of(self._trace))
        spans = [span for span in spans if span[0] < span[1]]
        return union(spans, GAP_NS // 2), union(spans, GAP_NS * 2)


def spans_of(trace: Path) -> list[tuple[int, int]]:
    lines = trace.read_text().splitlines(keepends=True) if trace.exists() else []
    return [(int(line.split()[1]), int(line.split()[2])) for line in lines if line.endswith("\n")]


def union(spans: list[tuple[int, int]], gap_ns: int) -> int:
    total, until = 0, 0
    for begin, end in spans:
        from_ns = until if begin - until < gap_ns and until else max(begin, until)
        total += max(0, end - from_ns)
        until = max(until, end)
    return total


def check(be: Traced, what: str, work: Callable[[], object], tolerated: float = 0.02) -> None:
    """Compare what the client reports during some work with the trace."""
    before, began = be.reported(), time.monotonic_ns()
    work()
    reported, ended = be.reported() - before, time.monotonic_ns()
    eventually(lambda: time.monotonic_ns() > ended + TRACED_NS, "the trace is complete")
    least, most = be.of_gpu(began, ended)
    figure(f"{what}: reported over the trace ({least / 1e9:.3f} s)", [reported / least, reported / most], "x")
    assert least * (1 - tolerated) <= reported <= most * (1 + tolerated)


def work_of(client: Client, *commands: str) -> Callable[[], object]:
    return lambda: [client.do(command) for command in (*commands, "ctxsync")]


@pytest.mark.parametrize(
    "command",
    ["flood 1 100", "loop 1 3000 1", "loop 1 1000 4", "serve 50 300 20000 20", "graphs 100 300 30", "run 1 1000000"],
)
def test_alone(machine: Machine, command: str) -> None:
    be = Traced(machine)
    warm(be.client, int(command.split()[2]), 20)
    check(be, command, work_of(be.client, command))


def test_unknown_kernels(machine: Machine) -> None:
    be = Traced(machine)
    commands = [f"launch 1 {number} 1" for number in range(1000, 9000, 71)]
    check(be, "unknown kernels", work_of(be.client, *commands))


def test_streams_that_overlap(machine: Machine) -> None:
    be = Traced(machine)
    for stream in (1, 2):
        be.client.must(f"run 20 700 {stream}")
    check(be, "two streams", work_of(be.client, *["launch 40 700 1", "launch 30 700 2"] * 8))


@pytest.mark.parametrize("busy_us", [4_000, 40_000])
def test_waits_for_hp_do_not_count(machine: Machine, busy_us: int) -> None:
    be = Traced(machine)
    hp = machine.start("hp-0")
    warm(be.client, 200, 20)
    machine.until_known(hp, be.client)

    def work() -> None:
        hp.send(f"serve {1_500_000 // busy_us} {busy_us} {2 * busy_us} 1")
        be.client.do("flood 2 200")
        be.client.must("ctxsync")
        hp.answer()

    check(be, f"beside hp, busy {busy_us} us", work)
    assert record_word(be.client, "gated_ns") > 0


def test_work_beside_hp_counts_by_the_sms_that_it_had(bare_machine: Machine) -> None:
    """It is moved to half of the SMs, and so takes twice as long as it would take alone."""
    bare_machine.run_contexts_together()
    bare_machine.start_agent()
    bare_machine.agent.set_policy(bare_machine.uuids[0], policy="orion", max_slowdown=100)
    hp, be = bare_machine.start("hp-0"), Traced(bare_machine)
    warm(be.client, 2000, 10)
    hp.send("flood 40 1000")  # never idle
    bare_machine.until(hp, "busy")
    be.client.must("run 1 2000", 30)  # it ends once hp permits overlap, after some seconds
    moved, before, began = record_word(be.client, "partitioned_launches"), be.reported(), time.monotonic_ns()
    be.client.must("run 100 2000")
    be.client.must("ctxsync")
    reported, ended = be.reported() - before, time.monotonic_ns()
    assert record_word(be.client, "partitioned_launches") > moved + 50
    eventually(lambda: time.monotonic_ns() > ended + TRACED_NS, "the trace is complete")
    _, traced = be.of_gpu(began, ended)
    figure(f"work on half of the SMs: reported over the trace ({traced / 1e9:.3f} s)", [reported / traced], "x")
    assert traced > 1.5 * reported
    assert 180 * MILLISECOND < reported < 220 * MILLISECOND


def test_waits_for_turns_do_not_count(machine: Machine) -> None:
    """Work that ran on into the turn of the other client counts as long as it would have taken alone."""
    clients = [Traced(machine, slot) for slot in ("be-0", "be-1")]
    for be in clients:
        warm(be.client, 400, 20)
    for be in clients:
        be.client.send("flood 3.5 400")
    eventually(lambda: all(be.reported() > 500 * MILLISECOND for be in clients), "both have had turns")
    for be in clients:
        check(be, "in turns", lambda: time.sleep(1.0), tolerated=0.03)  # the time that is measured
