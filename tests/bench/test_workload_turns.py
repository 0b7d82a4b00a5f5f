"""A process that builds waits for a process that measures its step time, and the other way round."""

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


def has_the_lock(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "in\n"


@pytest.mark.parametrize(("first", "second"), [("building", "timing"), ("timing", "building"), ("timing", "timing")])
def test_a_process_waits_for_the_other_and_continues_after_its_death(first: str, second: str, tmp_path: Path) -> None:
    holder = started(tmp_path, first)
    assert has_the_lock(holder)
    waiting = started(tmp_path, second)
    elsewhere = started(tmp_path, second, gpu="1")
    assert has_the_lock(elsewhere)  # started later, so the waiting process had time to get the lock
    assert waiting.poll() is None
    holder.kill()
    assert has_the_lock(waiting)
    for process in (holder, waiting, elsewhere):
        process.communicate(timeout=30)


def test_several_processes_build_at_the_same_time(tmp_path: Path) -> None:
    builders = [started(tmp_path, "building") for _ in range(3)]
    assert all(map(has_the_lock, builders))
    for process in builders:
        process.communicate(timeout=30)
