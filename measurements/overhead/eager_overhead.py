"""Measures an hp program that its CPU bounds: `python -m measurements.overhead.eager_overhead --output DIR`.

The program is eager PyTorch: every kernel is one launch from Python, so each nanosecond that the hook takes from its
CPU makes a request longer. Systems take turns, in random order:

    off        without the hook, back-to-back requests
    alone      the same with the hook, and no be client on the GPU
    held       the same beside a be client that hp keeps from running
    off-open   without the hook, requests at random times
    working    the same with the hook, beside a be client that runs in the gaps between requests

Three hp processes stay alive (`held` and `working` share one), each with its own agent or none; be works only in its
systems. All processes are pinned, hp to one CPU together with the hook's threads: their time then counts as hp's. A
turn's figures are the median latency, and for each launch CPU time and, where the machine counts them, instructions.

It needs an NVIDIA GPU and torch, and takes about two minutes.
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measurements.overhead.thread_costs import Threads
from orion.bench import raw_data
from orion.bench.arrivals import poisson_arrivals
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from orion.bench.managed import ManagedGPU, machine
from orion.bench.samples import latencies_ms
from orion.bench.workers.crew import Crew, Worker
from orion.bench.workloads import Load, load
from orion.errors import OrionError

HP: Load = ("resnet50-inference", {"batch": 4, "mode": "eager"})
BE: Load = ("resnet50-training", {})
OPEN_LOAD = 0.5  # share of the time for which random requests keep hp busy
PAUSE = 0.2  # seconds between the command and the start of a system's turn
COUNTED_EVERY = 0.6  # the hook counts launches more often than that


@dataclass(frozen=True)
class System:
    """A system that is measured."""

    name: str
    worker: str
    closed: bool
    """ Back-to-back requests; else requests at random times. """
    with_be: bool


SYSTEMS = (
    System("off", "off", True, False),
    System("alone", "alone", True, False),
    System("held", "beside", True, True),
    System("off-open", "off", False, False),
    System("working", "beside", False, True),
)
REFERENCES = {"alone": "off", "held": "off", "working": "off-open"}


def cpus() -> tuple[list[int], list[int]]:
    """Return CPUs for hp and for be: no two of one core, where there are enough."""
    here = sorted(os.sched_getaffinity(0))
    return (here[2:3], here[4:10]) if len(here) >= 12 else (here[:1], here[1:] or here)


def pin(worker: Worker, chosen: list[int]) -> None:
    """Pin all threads of a worker; those that start later inherit it. A worker starts faster with all CPUs."""
    for thread in Path(f"/proc/{worker.process_id}/task").iterdir():
        os.sched_setaffinity(int(thread.name), chosen)


class Bench:
    """The workers, and the turns that they take."""

    def __init__(self, crew: Crew, hp: dict[str, Worker], be: Worker, seconds: float) -> None:
        self._crew = crew
        self._hp = hp
        self._be = be
        self._seconds = seconds
        self.arrivals: list[float] = []

    def measure(self, system: System) -> dict[str, Any]:
        """Let one system work, and return what it took."""
        worker, begin = self._hp[system.worker], time.monotonic() + PAUSE
        end = begin + self._seconds
        with self._be_works(system, begin, end) as be_ends, Threads(worker.process_id) as threads:
            all_before, hook_before = threads.read()
            if system.closed:
                worker.command(do="loop", begin=begin, end=end)
            else:
                worker.command(do="serve", begin=begin, arrivals=self.arrivals)
            (reply,) = self._crew.gather(worker, seconds=4 * self._seconds + 30)
            all_after, hook_after = threads.read()
        ends = reply["ends"]
        starts = [0.0, *ends[:-1]] if system.closed else self.arrivals
        of_all, of_hook = all_after.since(all_before), hook_after.since(hook_before)
        return {
            "system": system.name,
            "requests": len(ends),
            "latencies_ms": [round(latency, 4) for latency in latencies_ms(starts, ends)[1:]],
            "cpu_s": of_all.cpu_s,
            "hook_threads_cpu_s": of_hook.cpu_s,
            "instructions": of_all.instructions,
            "hook_threads_instructions": of_hook.instructions,
            "be_ends": be_ends,
        }

    @contextmanager
    def _be_works(self, system: System, begin: float, end: float) -> Iterator[list[float]]:
        """Let be work from shortly before hp's first request on; the list is filled at the end: when steps ended."""
        ends: list[float] = []
        if system.with_be:
            self._be.command(do="loop", begin=begin - PAUSE / 2, end=end)
        yield ends
        if system.with_be:
            ends += self._crew.gather(self._be, seconds=4 * self._seconds + 30)[0]["ends"]

    def choose_arrivals(self, seed: int) -> None:
        """Draw the times of random requests, from the speed without the hook."""
        alone = statistics.median(self.measure(SYSTEMS[0])["latencies_ms"])
        self.arrivals = poisson_arrivals(OPEN_LOAD * 1e3 / alone, self._seconds, seed)

    def launches_of_a_request(self, managed: ManagedGPU) -> float:
        """Return the number of driver calls with work in one request."""

        def launched() -> int:
            time.sleep(COUNTED_EVERY)
            return sum(client.launches for slot in managed.snapshot().slots for client in slot.clients)

        before = launched()
        done = self.measure(SYSTEMS[1])
        return (launched() - before) / float(done["requests"])


def start(stack: ExitStack, crew: Crew, simulated: bool, seconds: float) -> tuple[Bench, ManagedGPU]:
    """Start the agents and all workers; returns also the agent of `alone`."""
    base = stack.enter_context(machine(simulated))
    alone, beside = (stack.enter_context(ManagedGPU(base, simulated)) for _ in range(2))
    environments = {"off": base, "alone": alone.client_environment("hp"), "beside": beside.client_environment("hp")}
    what = load(*HP, simulated)
    hp = {name: crew.start(f"hp {name}", *what, environment) for name, environment in environments.items()}
    be = crew.start("be", *load(*BE, simulated), beside.client_environment("be"))
    crew.ready(*hp.values(), be)
    of_hp, of_be = cpus()
    pin(be, of_be)
    for worker in hp.values():
        pin(worker, of_hp)
    return Bench(crew, hp, be, seconds), alone


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write eager_overhead.json.gz after each turn."""
    parser = OneSentenceParser(
        prog="measurements.overhead.eager_overhead", description="Latency and CPU time of eager hp requests."
    )
    parser.add_argument("--output", type=Path, required=True, help="a folder for the raw data")
    parser.add_argument("--turns", type=counted, default=7)
    parser.add_argument("--seconds", type=positive, default=1.5, help="length of a system's turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulated", action="store_true", help="try the script without a GPU; no results")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    raw: dict[str, Any] = {**raw_data.header("measurements.overhead.eager_overhead"), "cpus": cpus(), "rows": []}
    order = random.Random(options.seed)
    try:
        with ExitStack() as stack:
            crew = stack.enter_context(Crew())
            bench, alone = start(stack, crew, options.simulated, options.seconds)
            bench.choose_arrivals(options.seed)
            raw["launches_of_a_request"] = bench.launches_of_a_request(alone)
            for system in SYSTEMS:  # be learns its kernels, hp its gaps
                bench.measure(system)
            for turn in range(options.turns):
                for system in order.sample(SYSTEMS, len(SYSTEMS)):
                    row = {"turn": turn, **bench.measure(system)}
                    raw["rows"].append(row)
                    median = statistics.median(row["latencies_ms"])
                    cpu_us = 1e6 * row["cpu_s"] / row["requests"] / raw["launches_of_a_request"]
                    say(f"turn {turn + 1}: {system.name:<8} p50 {median:.3f} ms, {cpu_us:.2f} us of CPU a launch")
                raw_data.write(options.output / "eager_overhead.json.gz", raw)
    except (OrionError, FileNotFoundError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
