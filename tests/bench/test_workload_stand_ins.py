"""Every stand-in runs its steps on the simulated GPU."""

import json
import subprocess
import sys
from typing import Any

import pytest

from orion.bench.managed import machine
from orion.bench.workloads import KINDS, load

SHORT: dict[str, dict[str, Any]] = {
    "gpt-decode": {"tokens": 4},
    "gpt-decode-unsynchronised": {"tokens": 4},
    "resnet50-training": {"batch": 16, "stall": 0.3},
    "bert-training": {"batch": 2},
    "gpt-training": {"batch": 1, "sync_each_step": True},
    "gemm": {"size": 2048},
    "elementwise": {"passes": 2},
    "long-kernel": {"ms": 2.0},
    "decode-graph": {"layers": 10, "updated": True},
}
LOADS = {name: load(name, SHORT.get(name, {}), simulated=True) for name, kind in KINDS.items() if kind.stand_in}
LOADS["eager"] = load("resnet50-inference", {"batch": 4, "mode": "eager"}, simulated=True)
LOADS["high"] = load("resnet50-inference", {"batch": 4, "stream_priority": "high"}, simulated=True)

# Makes each load, alone and as one of several threads; prints the mean time of three steps, and the load's own details.
PROGRAM = """
import json, sys, time
from orion.bench.workload import Place
from orion.bench.workloads import make
for name, (kind, options) in json.loads(sys.argv[1]).items():
    for place in (Place(), Place(one_of_several=True)):
        workload = make(kind, options, place)
        begin = time.monotonic()
        with workload.throughout():
            for _ in range(3):
                workload.step()
        workload.finish()
        milliseconds = (time.monotonic() - begin) / 3 * 1e3
        print(json.dumps([name, milliseconds, workload.details["step_ms"], workload.unit, workload.amount]))
"""


@pytest.fixture(scope="module")
def rows() -> dict[str, list[list[Any]]]:
    with machine(simulated=True) as environment:
        command = [sys.executable, "-c", PROGRAM, json.dumps(LOADS)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[Any]]] = {}
    for line in done.stdout.splitlines():
        name, *row = json.loads(line)
        found.setdefault(name, []).append(row)
    return found


@pytest.mark.parametrize("name", LOADS)
def test_a_step_takes_as_long_as_its_kernels(name: str, rows: dict[str, list[list[Any]]]) -> None:
    assert len(rows[name]) == 2
    for milliseconds, promised, _, _ in rows[name]:
        assert promised * 0.999 <= milliseconds < promised * 10 + 50


def test_steps_have_the_units_of_their_workload(rows: dict[str, list[list[Any]]]) -> None:
    assert rows["resnet50-inference"][0][2:] == ["requests", 1.0]
    assert rows["resnet50-training"][0][2:] == ["steps", 16.0]
    assert rows["gemm"][0][2:] == ["steps", 8.0]
