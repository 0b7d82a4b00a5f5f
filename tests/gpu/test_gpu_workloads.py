"""Every workload on a real GPU, in a separate process and as one of several threads, with its own details."""

import json
import subprocess
import sys
from typing import Any

import pytest

from orion.bench.workloads import KINDS, why_skipped

pytestmark = pytest.mark.gpu
SECONDS = 300

# One process makes all loads of its argument, one after the other, and prints how long each took. With a process for
# each load, imports and contexts would take most of the time. The first step of a run must take as long as the
# others, because the set-up has warmed everything up.
PROGRAM = """
import gc, json, sys, time
import torch
from orion.bench.workload import Place
from orion.bench.workloads import make
for kind, options in json.loads(sys.argv[1]):
    for place in (Place(), Place(one_of_several=True)):
        begin = time.monotonic()
        workload = make(kind, options, place)
        made = time.monotonic()
        took = []
        with workload.throughout():
            for _ in range(4):
                start = time.monotonic()
                workload.step()
                workload.finish()
                took.append((time.monotonic() - start) * 1e3)
        print(json.dumps([kind, options, place.one_of_several, made - begin, took, workload.details]), flush=True)
        del workload
        gc.collect()
        torch.cuda.empty_cache()
"""

Load = tuple[str, dict[str, Any]]
REAL: list[Load] = [(name, {}) for name, kind in KINDS.items() if kind.stand_in is not None and not kind.packages]
INFERENCE = [name for name, _ in REAL if "mode" in KINDS[name].options.model_fields]
OTHERS: list[Load] = [
    *((name, {"mode": "eager"}) for name in INFERENCE),
    ("resnet50-inference", {"batch": 4, "stream_priority": "high"}),
    ("resnet50-inference", {"precision": "autocast"}),
    ("resnet50-inference", {"precision": "tf32"}),
    ("gpt-decode", {"batch": 32}),
    ("resnet50-training", {"stall": 0.3}),
    ("resnet50-training", {"batch": 64, "traced": True}),
    ("bert-training", {"sync_each_step": True}),
    ("gemm", {"size": 2048}),
    ("long-kernel", {"ms": 50.0}),
    ("long-kernel", {"ms": 2.0, "counts": "work"}),
    ("spin", {"blocks": 16}),
]
COMPILED: list[Load] = [("gpt-decode", {"mode": "compile"}), ("mobilenetv2-inference", {"mode": "compile"})]

PROGRAMS: list[Load] = [
    *((name, {}) for name, kind in KINDS.items() if kind.packages),
    ("compiled-training", {"mode": "reduce-overhead"}),
    ("decode-graph", {"updated": True}),
    ("jax-training", {"donate": True, "command_buffers": False}),
    ("timm-inference", {"mode": "reduce-overhead"}),
]
ALONE = """
import json, sys, time
from orion.bench.workloads import make
workload = make(sys.argv[1], json.loads(sys.argv[2]))
begin = time.monotonic()
with workload.throughout():
    for _ in range(4):
        workload.step()
workload.finish()
print(json.dumps([(time.monotonic() - begin) / 4 * 1e3, workload.gpu, workload.details]), flush=True)
"""


@pytest.mark.parametrize(("kind", "options"), PROGRAMS, ids=lambda value: value if isinstance(value, str) else None)
def test_every_program_runs_in_a_process_of_its_own(kind: str, options: dict[str, Any]) -> None:
    if skipped := why_skipped(kind):
        pytest.skip(skipped)
    command = [sys.executable, "-c", ALONE, kind, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    took, gpu, details = json.loads(done.stdout.splitlines()[-1])
    print(kind, options, took, details)
    assert "NVIDIA" in gpu
    assert took < 3 * details["step_ms"] + 5
    assert set(KINDS[kind].packages) <= set(details)
    if kind == "decode-graph":
        assert details["kernels"] >= 200
        assert 15 < details["step_ms"] < 60


@pytest.mark.parametrize("loads", [REAL, OTHERS, COMPILED], ids=["defaults", "options", "compiled"])
def test_every_workload_is_set_up_and_warm(loads: list[Load]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(loads)], capture_output=True, text=True, timeout=SECONDS
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 2 * len(loads)
    for kind, options, _, _, took, details in rows:
        assert took[0] < 10 * min(took) + 5, (kind, options, took)
        if kind == "long-kernel":
            assert took[-1] == pytest.approx(2 * options.get("ms", 10.0), rel=0.15)
        assert details["step_ms"] > 0
