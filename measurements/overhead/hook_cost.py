"""Measures what the hook adds to one driver call: `python -m measurements.overhead.hook_cost` or `make bench-hook`.

A small C program launches empty kernels and synchronises: without the hook, as an hp client, and as a be client that
need not wait. On a GPU, the script times each call and alternates between the three systems. Without a GPU, callgrind
counts instructions on the simulated GPU. Times would mostly show the simulation's cost there, but numbers of
instructions are exact and equal on every machine.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted
from orion.bench.managed import ManagedGPU, machine
from orion.errors import OrionError, Unavailable

CLIENT = Path(__file__).with_name("hook_cost_client.c")
CLIENT_SECONDS = 120.0


@dataclass(frozen=True)
class Case:
    """One driver call by one kind of client."""

    role: str
    call: str
    """ `launch` or `synchronise`: an argument of the C program. """
    burst: int
    """ Launches between two synchronisations. A be burst is short, because be waits when its window is full. """
    limit_ns: int
    """ Maximum cost of the hook on a GPU. """


CASES = (Case("hp", "launch", 500, 60), Case("be", "launch", 40, 300),
         Case("hp", "synchronise", 1, 200), Case("be", "synchronise", 1, 200))  # fmt: skip
PLAIN = ("--compress-strings=no", "--compress-pos=no")
""" Options of callgrind: a profile without abbreviations. """
Pairs = list[tuple[float, float]]
""" Without and with the hook, one pair for each turn. """


@dataclass(frozen=True)
class Subjects:
    """The systems that are measured: clients without the hook, as hp and as be."""

    managed: ManagedGPU
    environments: dict[str, dict[str, str]]

    def joined(self, system: str) -> Callable[[], None]:
        """Return a function that waits until a client of that system has joined, if it must join."""
        return (lambda: None) if system == "off" else (lambda: self.managed.wait_for_clients(1))


def compile_client(folder: Path) -> Path:
    """Compile the C program into a folder."""
    program = folder / "hook_cost_client"
    command = ["gcc", "-std=gnu11", "-O2", "-g", "-o", str(program), str(CLIENT), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False)
    if done.returncode != 0:
        raise Unavailable(f"gcc cannot compile {CLIENT}:\n{done.stderr.strip()[-2000:]}")
    return program


def time_call(program: Path, subjects: Subjects, case: Case, turns: int) -> Pairs:
    """Time a call. A turn's figure is the median over its bursts, in nanoseconds."""

    def median(system: str) -> float:
        command = [str(program), case.call, "200", str(case.burst)]
        lines = run_client(command, subjects.environments[system], subjects.joined(system))
        return statistics.median(map(float, lines.split()))

    pairs = []
    for turn in range(turns):
        first, second = ("off", case.role) if turn % 2 == 0 else (case.role, "off")  # the second one finds a warm GPU
        taken = {first: median(first), second: median(second)}
        pairs.append((taken["off"], taken[case.role]))
    return pairs


def count_call(program: Path, subjects: Subjects, case: Case, turns: int, folder: Path) -> tuple[Pairs, float]:
    """Count a call's instructions under callgrind.

    Returns:
        Two values: pairs of the instructions of one call, without and with the hook; and the instructions of one call
        in the hook's own code. The pairs include the driver's instructions, which vary a little, because the simulated
        GPU's work depends on time.
    """
    out, rounds = folder / "callgrind.out", 4000 // case.burst if case.call == "launch" else 200
    calls = rounds * case.burst

    def count(system: str) -> tuple[float, float]:
        counting = callgrind_command(out, f"measured_{case.call}")
        command = [*counting, str(program), case.call, str(rounds), str(case.burst)]
        run_client(command, subjects.environments[system], subjects.joined(system))
        by_object = instructions_by_object(out.read_text())
        own = sum(number for name, number in by_object.items() if "liborion_hook" in name)
        return sum(by_object.values()) / calls, own / calls

    turned = [(count("off"), count(case.role)) for _ in range(turns)]
    return [(off[0], on[0]) for off, on in turned], statistics.median(on[1] for _, on in turned)


def callgrind_command(out: Path, function: str) -> list[str]:
    """Return the command prefix under which a program's function is counted, with output to a file."""
    return [
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        "--collect-atstart=no",
        f"--toggle-collect={function}",
        f"--callgrind-out-file={out}",
        *PLAIN,
    ]


def instructions_by_object(text: str) -> Counter[str]:
    """Sum the self cost of all lines. Callgrind's own summary includes the start of the client.

    Args:
        text: A callgrind profile written with the options of `callgrind_command`: one event, no compressed names.

    Returns:
        Instructions by the path of the object that contains them; "???" if callgrind did not know the object.
    """
    counts: Counter[str] = Counter()
    current = "???"
    inclusive = False  # the line after `calls=` is the callee's cost, which the callee's own lines count
    for line in text.splitlines():
        if line.startswith("ob="):
            current = line[3:]
        elif line.startswith("calls="):
            inclusive = True
        elif line[:1].isdigit():
            if not inclusive:
                counts[current] += int(line.split()[1])
            inclusive = False
    return counts


def summarise(case: Case, pairs: Pairs) -> dict[str, Any]:
    """Subtract the figure without the hook from the figure with the hook, in each turn.

    Returns:
        off, on, cost: medians; spread: the quartiles of the cost over the turns.
    """
    costs = [on - off for off, on in pairs]
    low, _, high = statistics.quantiles(costs, n=4) if len(costs) > 1 else costs * 3
    medians = {"off": [off for off, _ in pairs], "on": [on for _, on in pairs], "cost": costs}
    row = {name: round(statistics.median(values), 1) for name, values in medians.items()}
    return {"call": case.call, "role": case.role, **row, "spread": [round(low, 1), round(high, 1)]}


def measure(simulated: bool, turns: int) -> dict[str, Any]:
    """Measure all cases; see `summarise` for the rows."""
    with ExitStack() as stack:
        base = stack.enter_context(machine(simulated))
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="orion-"))
        managed = stack.enter_context(ManagedGPU(base, simulated))
        folder = Path(name)
        program = compile_client(folder)
        roles = {role: managed.client_environment(role) for role in ("hp", "be")}
        subjects = Subjects(managed, {"off": base, **roles})
        rows = []
        for case in CASES:
            if simulated:
                pairs, own = count_call(program, subjects, case, turns, folder)
                rows.append({**summarise(case, pairs), "own": round(own, 1)})
            else:
                pairs = time_call(program, subjects, case, turns)
                rows.append({**summarise(case, pairs), "limit": case.limit_ns})
        unit = "instructions" if simulated else "ns"
        head = {**raw_data.header("measurements.overhead.hook_cost"), "gpu": managed.gpu.model, "simulated": simulated}
        return {**head, "unit": unit, "turns": turns, "calls": rows}


def table(results: dict[str, Any]) -> Table:
    """Return the results as a table for people."""
    unit = results["unit"]
    last = "own" if unit == "instructions" else "limit"
    sheet = Table(title=f"{unit} a call, {results['gpu']}")
    for name in ("client", "call"):
        sheet.add_column(name, no_wrap=True)
    for name in ("without", "with", "cost", "quartiles", last):
        sheet.add_column(name, justify="right", no_wrap=True)
    for row in results["calls"]:
        low, high = row["spread"]
        numbers = (f"{row[name]:.0f}" for name in ("off", "on", "cost"))
        sheet.add_row(row["role"], row["call"], *numbers, f"{low:.0f} to {high:.0f}", f"{row[last]:.0f}")
    if unit == "instructions":
        sheet.caption = "own: instructions in the hook's code; the rest of the cost is the simulated driver's and noise"
    return sheet


def run_client(command: list[str], environment: dict[str, str], joined: Callable[[], None]) -> str:
    """Run a client and return its output.

    The client prints "ready" and joins its agent. Then this function writes a line to the client, which measures.
    """
    with tempfile.TemporaryFile() as errors:
        client = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            assert client.stdout is not None
            if client.stdout.readline() == "ready\n":
                joined()
            printed, _ = client.communicate("go\n", timeout=CLIENT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"`{' '.join(command)}` took more than {CLIENT_SECONDS:.0f} s") from error
        finally:
            client.kill()
            client.wait()
        if client.returncode != 0:
            errors.seek(0)
            raise Unavailable(f"`{' '.join(command)}` failed:\n{errors.read().decode(errors='replace')[-2000:]}")
        return printed


def main(arguments: list[str] | None = None) -> int:
    """Measure; print a table, or JSON with --json."""
    parser = OneSentenceParser(
        prog="measurements.overhead.hook_cost", description="Measure what the hook adds to one driver call."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--simulated", action="store_true", default=None, help="count instructions even if there is a GPU"
    )
    where.add_argument("--gpu", dest="simulated", action="store_false", default=None, help="time calls on a GPU")
    parser.add_argument("--turns", type=counted, help="measurements of each system; default: 9 on a GPU, else 3")
    parser.add_argument("--json", dest="as_json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--output", type=Path, help="a file for the JSON")
    options: argparse.Namespace = parser.parse_args(arguments)
    simulated = not Path("/dev/nvidiactl").exists() if options.simulated is None else options.simulated
    for tool in ("gcc", "valgrind") if simulated else ("gcc",):
        if shutil.which(tool) is None:
            print(f"{parser.prog}: {tool} is not installed: install it and run again", file=sys.stderr)
            return 1
    try:
        results = measure(simulated, options.turns or (3 if simulated else 9))
    except (OrionError, FileNotFoundError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    if options.output:
        raw_data.write(options.output, results)
    if options.as_json:
        print(json.dumps(results))
    else:
        Console().print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
