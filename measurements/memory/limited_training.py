"""Measures training in a grant of its peak and 5 %: `python -m measurements.memory.limited_training --output FILE`.

For each of PyTorch's allocators three processes train alternately: without the hook, under the hook without a limit,
and in a slot whose limit is 1.05 times what the second one held at most. Clocks and temperature drift by more than a
limit costs, so only neighbouring turns are compared.

It needs an NVIDIA GPU and torch, and nobody else on the GPU.
"""

import random
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from orion.bench.managed import ManagedGPU, machine
from orion.bench.samples import completed_between
from orion.bench.workers.crew import Crew, Worker
from orion.bench.workloads import load
from orion.errors import OrionError

ALLOCATORS = {
    "native": "",
    "expandable": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}
MORE = 1.05
PAUSE, EDGE, LOOK = 0.3, 0.2, 0.02
""" Seconds before a turn begins, at each of its ends that do not count, and between two looks at what is held. """


class Peak(threading.Thread):
    """The most that the slots of an agent hold together, until `end`."""

    def __init__(self, managed: ManagedGPU) -> None:
        super().__init__(daemon=True)
        self._managed, self._ends = managed, threading.Event()
        self.bytes = 0

    def run(self) -> None:
        """Look until `end`."""
        while not self._ends.wait(LOOK):
            held = sum(client.memory_bytes for slot in self._managed.snapshot().slots for client in slot.clients)
            self.bytes = max(self.bytes, held)

    def end(self) -> int:
        """Stop looking; return the most, in bytes."""
        self._ends.set()
        self.join()
        return self.bytes


def turn(crew: Crew, worker: Worker, seconds: float) -> float:
    """Let one worker work; return what it did in a second."""
    begin = time.monotonic() + PAUSE
    worker.command(do="loop", begin=begin, end=begin + seconds + 2 * EDGE)
    (reply,) = crew.gather(worker, seconds=3 * seconds + 60)
    return float(completed_between(reply["ends"], EDGE, EDGE + seconds) * worker.about["amount"] / seconds)


def measure(name: str, batch: int, turns: int, seconds: float, simulated: bool) -> dict[str, Any]:
    """Return the limit and the rate of each turn of one allocator."""
    kind, options = load("resnet50-training", {"batch": batch}, simulated)
    with ExitStack() as stack:
        base = stack.enter_context(machine(simulated))
        allocator = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[name]} if ALLOCATORS[name] else {}
        managed = stack.enter_context(ManagedGPU(base, simulated))
        crew = stack.enter_context(Crew())
        free = crew.start("no limit", kind, options, {**managed.client_environment("be"), **allocator})
        peak = Peak(managed)
        peak.start()
        crew.ready(free)
        turn(crew, free, seconds)
        most = peak.end()
        limit = round(MORE * most)
        slot = {**managed.client_environment("be", memory={"memory_limit_bytes": limit}), **allocator}
        workers = {"no limit": free, "limit": crew.start("limit", kind, options, slot)}
        crew.ready(workers["limit"])
        workers["off"] = crew.start("off", kind, options, {**base, **allocator})
        crew.ready(workers["off"])
        order, rates = random.Random(1), []
        for _ in range(turns):
            rates.append({each: turn(crew, workers[each], seconds) for each in order.sample(list(workers), 3)})
            say(f"{name}: " + ", ".join(f"{each} {rate:.1f}" for each, rate in sorted(rates[-1].items())))
        held = [client.memory_bytes for each in managed.snapshot().slots for client in each.clients]
    return {"allocator": name, "batch": batch, "peak_bytes": most, "limit_bytes": limit, "held": held, "rates": rates}


def main(arguments: list[str] | None = None) -> int:
    """Measure all allocators; write the raw data after each, and print a line for each."""
    parser = OneSentenceParser(prog="python -m measurements.memory.limited_training", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the file of raw data")
    parser.add_argument("--turns", type=counted, default=7)
    parser.add_argument("--seconds", type=positive, default=1.5, help="counted length of a turn")
    parser.add_argument("--batch", type=counted, default=128, help="images per step")
    parser.add_argument("--simulated", action="store_true", help="try the script without a GPU; no results")
    options = parser.parse_args(arguments)
    raw: dict[str, Any] = {**raw_data.header("measurements.memory.limited_training"), "runs": []}
    failed = 0
    for name in ALLOCATORS:
        try:
            run = measure(name, options.batch, options.turns, options.seconds, options.simulated)
        except OrionError as error:
            say(f"{name}: {error}")
            run, failed = {"allocator": name, "error": str(error), "rates": []}, 1
        raw["runs"].append(run)
        raw_data.write(options.output, raw)
        for other in ("no limit", "off") if run["rates"] else ():
            ratios = sorted(rates["limit"] / rates[other] for rates in run["rates"])
            say(f"{name}: limit / {other} {statistics.median(ratios):.4f} ({ratios[0]:.4f} to {ratios[-1]:.4f})")
    return failed


if __name__ == "__main__":
    sys.exit(main())
