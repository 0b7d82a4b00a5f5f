"""Every workload on a real GPU, in a separate process and as one of several threads, with its own details."""

import json
import subprocess
import sys
from typing import Any

import pytest

from orion.bench.workloads import KINDS

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
REAL: list[Load] = [(name, {}) for name, kind in KINDS.items() if kind.stand_in is not None]
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


@pytest.mark.timeout(SECONDS)
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
