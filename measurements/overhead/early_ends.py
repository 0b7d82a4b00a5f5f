"""Measures when the next slot has a turn that ends early: `python -m measurements.overhead.early_ends --output F`.

Two be clients share a GPU. One works for 3 ms, sleeps for a random time, and so on. The other runs kernels of 50 us in
a closed loop, and waits for each. Both note on the same clock when their work is complete. A handover is the time from
the end of the sleeper's work to the end of the other's first kernel after it, less the usual time of such a kernel. It
includes the 0.25 to 0.5 ms of idleness after which the hook hands a turn back, and the switch of contexts.

A handover counts if the other waited for the sleeper's turn, and if the sleeper slept until the other's kernel was
complete. The file has all of the sleeper's requests, also those that do not count.
"""

import bisect
import itertools
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, positive, say
from orion.bench.managed import ManagedGPU, machine
from orion.bench.samples import percentile
from orion.bench.workers.crew import Crew
from orion.bench.workloads import Load, load
from orion.errors import OrionError

SLEEPER: Load = ("long-kernel", {"ms": 0.1, "kernels": 30, "counts": "work"})
OTHER: Load = ("long-kernel", {"ms": 0.05, "kernels": 1, "counts": "work"})
GAPS = 0.020, 0.060
""" Seconds between two requests of the sleeper. """
HELD = 0.001
""" The other waited if it completed nothing for so many seconds before the sleeper's work was complete. """
MAX_SLOWDOWN = 1.5
""" What hp's owner grants where the clients run together. """
PAUSE, LEAD, SEED = 0.5, 2.0, 1
""" Seconds before the loops begin, and of both loops before the first handover. """


def measure(seconds: float, simulated: bool, together: bool) -> dict[str, Any]:
    """Run both clients; return the other's usual time of a kernel, and one row for each request of the sleeper.

    Args:
        seconds: how long the clients run.
        simulated: use a simulated GPU.
        together: it runs the clients together, as under MPS.
    """
    chance = random.Random(SEED)
    gaps = (chance.uniform(*GAPS) for _ in itertools.count())
    arrivals = list(itertools.takewhile(lambda at: at < LEAD + seconds, itertools.accumulate(gaps, initial=LEAD)))
    with ExitStack() as stack:
        processes = stack.enter_context(machine(simulated, "mps" if together else "timeslice"))
        managed = stack.enter_context(ManagedGPU(processes, simulated))
        if together:
            managed.set_policy(policy="orion", max_slowdown=MAX_SLOWDOWN)
        crew = stack.enter_context(Crew())
        workers = []
        for name, (kind, options) in (("sleeper", SLEEPER), ("other", OTHER)):
            environment = managed.client_environment("be")
            workers.append(crew.start(name, *load(kind, options, simulated), environment))
        crew.ready(*workers)
        for worker in workers:
            managed.wait_for_process(worker.process_id)
        begin = time.monotonic() + PAUSE
        sleeper, other = workers
        sleeper.command(do="serve", begin=begin, arrivals=arrivals)
        other.command(do="loop", begin=begin, end=begin + LEAD + seconds)
        served, looped = crew.gather(sleeper, other, seconds=seconds + 60.0)
    ends = looped["ends"]
    kernel = percentile((after - before for before, after in itertools.pairwise(ends)), 50)
    return {"kernel": kernel, "requests": around(served["starts"], served["ends"], ends)}


def around(starts: Sequence[float], ends: Sequence[float], others: Sequence[float]) -> list[list[float]]:
    """Return for each request its start and end, and the ends of the other's kernels before and after that end.

    The last request, and one without such a kernel, has no row.
    """
    rows = []
    for start, end in zip(starts[:-1], ends[:-1], strict=True):
        place = bisect.bisect_right(others, end)
        if 0 < place < len(others):
            rows.append(raw_data.rounded([start, end, others[place - 1], others[place]]))
    return rows


def handovers(rows: Sequence[Sequence[float]], kernel: float) -> list[float]:
    """Return the handovers that count, in seconds."""
    following = [row[0] for row in rows[1:]] + [float("inf")]
    return [
        first - end - kernel
        for (_, end, last, first), again in zip(rows, following, strict=True)
        if end - last >= HELD and first < again
    ]


def main(arguments: list[str]) -> None:
    """Measure, write the file, and print the figures."""
    parser = OneSentenceParser(prog="python -m measurements.overhead.early_ends", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the file of raw data")
    parser.add_argument("--seconds", type=positive, default=60.0, help="how long both clients run")
    parser.add_argument("--simulated", action="store_true", help="use a simulated GPU; its figures are no results")
    parser.add_argument(
        "--together", action="store_true", help="with --simulated: as under MPS, beside an hp that may be slowed"
    )
    options = parser.parse_args(arguments)
    found = measure(options.seconds, options.simulated, options.together)
    raw = {**raw_data.header("measurements.overhead.early_ends"), **found}
    raw_data.write(options.output, raw)
    times = [1e3 * each for each in handovers(raw["requests"], raw["kernel"])]
    say(
        f"{len(times)} of {len(raw['requests'])} requests count; handover: median {percentile(times, 50):.2f} ms, "
        f"p99 {percentile(times, 99):.2f} ms, longest {max(times, default=float('nan')):.2f} ms"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OrionError as error:
        sys.exit(str(error))
