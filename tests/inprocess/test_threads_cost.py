"""Counts the hook's instructions in a client's launch, if no lock, no system call and no other thread is involved."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hook.harness import Machine, figure

LAUNCHES = 20_000  # in the scenario `cost`


def instructions(machine: Machine, environment: dict[str, str], where: str) -> float:
    """Return the hook's own instructions per launch.

    Args:
        where: What the thread launches on. 0: it is bound to no client; 1: the client's default stream; 2: the client's
            stream, by its handle; 3: as 1, beside a client that has 100 blocking streams.
    """
    output = machine.folder / f"callgrind.{where}"
    command = ["valgrind", "--tool=callgrind", "--compress-strings=no", f"--callgrind-out-file={output}"]
    command += [str(machine.build / "test" / "client_threads"), "cost", where]
    # valgrind itself must not preload the hook, so env sets the variable for the program only.
    preload = f"LD_PRELOAD={environment['LD_PRELOAD']}"
    rest = {name: value for name, value in environment.items() if name != "LD_PRELOAD"}
    done = subprocess.run(["env", preload, *command], env=rest, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    return of_hook(output) / LAUNCHES


def of_hook(output: Path) -> int:
    """Sum the self cost of the hook's functions in an output file of callgrind."""
    total, ours, called = 0, False, False
    for line in output.read_text().splitlines():
        if line.startswith("ob="):
            ours = "liborion_hook" in line
        elif line.startswith("calls="):
            called = True
        elif cost := re.match(r"[+\-*\d]\S* (\d+)$", line):
            total += int(cost[1]) if ours and not called else 0
            called = False
    return total


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="NOT TESTED: counting instructions needs valgrind")
def test_a_launch_costs_a_few_hundred_instructions(bare_machine: Machine, preloaded: dict[str, str]) -> None:
    unbound, default, named, beside = (instructions(bare_machine, preloaded, where) for where in "0123")
    figure("a launch by an unbound thread", [unbound], "instructions of the hook")
    figure("on a client's default stream", [default], "instructions of the hook")
    figure("on a client's stream by its handle", [named], "instructions of the hook")
    figure("on hp's default stream, beside blocking streams of be", [beside], "instructions of the hook")
    assert 50 < unbound < 300
    assert default < 500  # a quarter of a microsecond at two instructions per nanosecond
    assert named < default
    assert beside < 3 * default  # beside be, hp also marks its progress
