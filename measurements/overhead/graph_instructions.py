"""Counts what the hook adds to changes of a best-effort program's graph, on the simulated GPU.

    python -m measurements.overhead.graph_instructions --include FOLDER > graph_instructions.jsonl

Callgrind counts, for each change, the instructions of the hook (its own, and those of libc that it calls) and its calls
of the driver. These numbers do not depend on the machine. The driver's own instructions are not counted: the simulated
driver's are not NVIDIA's. FOLDER has NVIDIA's cuda.h; gcc and valgrind are needed. Each line of output is one change of
a graph of N kernels in a chain, of which every kernel gets another argument.
"""

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from measurements.overhead.graph_cost import compiled, idle_hp
from measurements.overhead.hook_cost import PLAIN, run_client
from orion import hook
from orion.bench.managed import ManagedGPU, machine

CHANGES = ("instantiate", "first_set", "set", "launch_after_set", "first_update", "update", "launch_after_update")
HOOK, DRIVER = "liborion_hook", "libcuda"


def hook_costs(text: str) -> tuple[int, Counter[str]]:
    """Read a callgrind profile that was written with the options PLAIN.

    Returns:
        Two values: the instructions of the hook and of what it calls except the driver; and the hook's calls of the
        driver by function.
    """
    instructions = 0
    calls: Counter[str] = Counter()
    place = callee = function = ""
    counted = 0
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "ob":
            place = callee = value
        elif name == "cob":
            callee = value
        elif name == "cfn":
            function = value
        elif name == "calls":
            counted = int(value.split()[0])
        elif line[:1].isdigit() and HOOK in place:
            if not counted or (HOOK not in callee and DRIVER not in callee):
                instructions += int(line.split()[1])
            if counted and DRIVER in callee:
                calls[function] += counted
        if line[:1].isdigit():
            counted, callee = 0, place
    return instructions, calls


def count(
    program: Path, environment: dict[str, str], joined: Callable[[], None], change: str, nodes: int
) -> dict[str, object]:
    """Count one change of a graph with so many nodes."""
    with tempfile.TemporaryDirectory(prefix="orion-") as folder:
        out, function = Path(folder) / "out", f"counted_{change}"
        counting = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", *PLAIN]
        counting += ["--separate-threads=yes", f"--zero-before={function}", f"--dump-after={function}"]
        run_client([*counting, str(program), "count", str(nodes)], environment, joined)
        instructions, calls = hook_costs(out.with_name("out.1-01").read_text())
    return {"change": change, "nodes": nodes, "instructions": instructions, "driver_calls": dict(calls.most_common())}


def main() -> None:
    """Parse the command line, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--include", type=Path, required=True, help="the folder of cuda.h")
    parser.add_argument("--nodes", type=int, nargs="+", default=[200])
    arguments = parser.parse_args()
    with ExitStack() as stack:
        base = stack.enter_context(machine(simulated=True))
        managed = stack.enter_context(ManagedGPU(base, simulated=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="orion-")))
        program = compiled(folder, arguments.include, hook.simulated_driver().parent)
        be, hp = managed.client_environment("be"), managed.client_environment("hp")
        for others, case in enumerate(("be", "be beside idle hp")):
            joined = partial(managed.wait_for_clients, 1 + others)
            if others:
                stack.enter_context(idle_hp([str(program), "idle"], hp))
                managed.wait_for_clients(others)
            for nodes in arguments.nodes:
                for change in CHANGES:
                    row = count(program, be, joined, change, nodes)
                    print(json.dumps({"case": case, **row}), flush=True)


if __name__ == "__main__":
    main()
