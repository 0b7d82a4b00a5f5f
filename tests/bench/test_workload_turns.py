"""Processes that build wait for a process that times itself, and vice versa."""

import subprocess
import sys
from pathlib import Path

import pytest

HOLDER = """
import sys
from orion.bench.workloads import turns
with getattr(turns, sys.argv[1])():
    print("in", flush=True)
    sys.stdin.read()
"""


def started(folder: Path, how: str, gpu: str = "0") -> subprocess.Popen[str]:
    environment = {"TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": gpu, "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", HOLDER, how]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def is_in(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "in\n"


@pytest.mark.parametrize(("first", "second"), [("building", "timing"), ("timing", "building"), ("timing", "timing")])
def test_a_process_waits_for_the_other_and_continues_after_its_death(first: str, second: str, tmp_path: Path) -> None:
    holder = started(tmp_path, first)
    assert is_in(holder)
    waiting = started(tmp_path, second)
    elsewhere = started(tmp_path, second, gpu="1")
    assert is_in(elsewhere)  # started later, so the waiting process had time to get the lock
    assert waiting.poll() is None
    holder.kill()
    assert is_in(waiting)
    for process in (holder, waiting, elsewhere):
        process.communicate(timeout=30)


def test_builders_build_side_by_side(tmp_path: Path) -> None:
    builders = [started(tmp_path, "building") for _ in range(3)]
    assert all(map(is_in, builders))
    for process in builders:
        process.communicate(timeout=30)
