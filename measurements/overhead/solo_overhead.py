"""Measures a single process with the hook on and off: `python -m measurements.overhead.solo_overhead --output DIR`.

It measures throughput in a closed loop, where every nanosecond that the hook adds to the critical path counts. For each
load and role two processes stay alive, one without the hook and one with it. They work alternately for some seconds
each, in random order. Clocks and temperature drift by more than the hook costs, so only neighbouring turns are
compared. `--loads` also takes the public programs of `orion bench programs`.

With `--idle-hp` an hp client that does nothing is there, and the role is be alone: what does be lose by the presence of
hp? Two processes of one program may differ by percents, because libraries time their kernels when they start, and
choose. So the process with the hook also works in turns of the policy `none`, under which it does not wait for hp. Each
row has the memory of the GPU in use after its turn: pieces of graphs take some.

It needs an NVIDIA GPU and torch, and takes about four minutes with the defaults.
"""

import itertools
import random
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from orion.bench.managed import ManagedGPU, machine
from orion.bench.samples import completed_between
from orion.bench.workers.crew import Crew
from orion.bench.workloads import Load, load
from orion.bench.workloads.programs.kinds import PROGRAMS
from orion.errors import OrionError

LOADS: dict[str, Load] = {
    "resnet50-inference": ("resnet50-inference", {}),
    "gemm": ("gemm", {}),
    "resnet50-training": ("resnet50-training", {}),
    "resnet50-eager": ("resnet50-inference", {"batch": 4, "mode": "eager"}),  # CPU-bound: shows the cost of a launch
}
LOADS |= {name: (name, {}) for name in PROGRAMS}
LOADS |= {
    "jax-without-graphs": ("jax-training", {"command_buffers": False}),
    "reduce-overhead": ("compiled-training", {"mode": "reduce-overhead"}),
    "decode-updated": ("decode-graph", {"updated": True}),
    "branches": ("decode-graph", {"layers": 128, "branches": 4, "batch": 512}),
}
USUAL = ("resnet50-inference", "gemm", "resnet50-training", "resnet50-eager")
IDLE_HP: Load = ("resnet50-inference", {"batch": 256, "mode": "graph"})
""" Its requests are long enough for the whole window; shorter ones narrow it (be/window.h). """
PAUSE = 0.3  # seconds between the command and the start of a turn
EDGE = 0.2  # seconds at each end of a turn that are not counted


@dataclass(frozen=True)
class Turns:
    """How a load is measured."""

    count: int
    seconds: float
    order: random.Random
    without_policy: bool
    """ Whether the worker with the hook also works under the policy "none". """


def run_load(
    name: str, what: Load, turns: Turns, crew: Crew, managed: ManagedGPU, environments: dict[str, dict[str, str]]
) -> list[dict[str, Any]]:
    """Measure one load.

    Args:
        name: The load's name.
        what: The load's workload.
        turns: Number and length of the turns.
        crew: Starts the workers; they are dismissed at the end.
        managed: The GPU. Its policy is the default again at the end.
        environments: That of the worker without the hook ("off"), and that of the worker with it, by its role.

    Returns:
        One row for each turn and system: load, role, turn, system, per_second, the end times of all steps, and the
        memory of the GPU in use, in bytes.
    """
    processes = {system: crew.start(f"{name} {system}", *what, each) for system, each in environments.items()}
    crew.ready(*processes.values())
    (role,) = processes.keys() - {"off"}
    workers = {**processes, "none": processes[role]} if turns.without_policy else processes
    rows = []
    for turn in range(turns.count):
        for system in turns.order.sample(list(workers), len(workers)):
            managed.set_policy(policy="none" if system == "none" else "orion")
            begin, worker = time.monotonic() + PAUSE, workers[system]
            worker.command(do="loop", begin=begin, end=begin + turns.seconds + 2 * EDGE)
            (reply,) = crew.gather(worker, seconds=3 * turns.seconds + 30)
            steps = completed_between(reply["ends"], EDGE, EDGE + turns.seconds)
            per_second = steps * worker.about["amount"] / turns.seconds
            rows.append(
                {
                    "load": name,
                    "role": role,
                    "turn": turn,
                    "system": system,
                    "per_second": per_second,
                    "unit": worker.about["unit"],
                    "ends": raw_data.rounded(reply["ends"]),
                    "memory_used_bytes": managed.snapshot().memory_used_bytes,
                }
            )
            say(f"{name} turn {turn + 1}: {system:<4} {per_second:.2f} {worker.about['unit']}/s")
    managed.set_policy(policy="orion")
    crew.end(processes.values())
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Measure all loads and write solo_overhead.json.gz after each."""
    parser = OneSentenceParser(
        prog="measurements.overhead.solo_overhead", description="Throughput with the hook on and off."
    )
    parser.add_argument("--output", type=Path, required=True, help="a folder for the raw data")
    parser.add_argument("--loads", nargs="+", choices=tuple(LOADS), default=list(USUAL))
    parser.add_argument("--idle-hp", action="store_true", help="be alone, beside an hp client that does nothing")
    parser.add_argument("--turns", type=counted, default=6)
    parser.add_argument("--seconds", type=positive, default=1.5, help="counted length of a turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--simulated", action="store_true", help="try the script without a GPU; no results")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    header = raw_data.header("measurements.overhead.solo_overhead")
    raw: dict[str, Any] = {**header, "idle_hp": options.idle_hp, "rows": []}
    turns = Turns(options.turns, options.seconds, random.Random(options.seed), options.idle_hp)
    try:
        with ExitStack() as stack:
            environment = stack.enter_context(machine(options.simulated))
            managed = stack.enter_context(ManagedGPU(environment, options.simulated))
            hooked = {role: managed.client_environment(role) for role in ("hp", "be")}
            if options.idle_hp:
                present = stack.enter_context(Crew())
                idle = hooked.pop("hp")
                present.ready(present.start("idle hp", *load(*IDLE_HP, options.simulated), idle))
            # One role at a time: an hp client, even an idle one, would affect a be client on the same GPU.
            for kind, role in itertools.product(options.loads, hooked):
                crew = stack.enter_context(Crew())
                what = load(*LOADS[kind], options.simulated)
                raw["rows"] += run_load(kind, what, turns, crew, managed, {"off": environment, role: hooked[role]})
                raw_data.write(options.output / "solo_overhead.json.gz", raw)
    except (OrionError, FileNotFoundError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
