"""`orion run` and `orion top` from the command line: real processes, a real agent, the simulated GPU."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.cli import agents
from tests.waiting import eventually

DEADLINE = 30.0
ORION = [sys.executable, "-m", "orion.cli"]
# A CUDA program: creates a context, prints a line, and runs until its standard input ends.
CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def client(root: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that starts a CUDA program under `orion run` and waits until it is ready; all end with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        command = [*ORION, "run", "--simulated", "--root", str(root), *options, "--", sys.executable, "-c", CLIENT]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        return process

    yield start
    for process in started:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Make a client end by closing its standard input; a second call has no effect."""
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    process.wait(DEADLINE)


def _orion(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ORION, *arguments], capture_output=True, text=True, timeout=DEADLINE)


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _orion("run", "--simulated", "--root", str(root), *arguments)


def test_the_program_gets_its_arguments_and_gives_its_status(root: Path) -> None:
    done = _run(root, "--priority", "be", "--", "sh", "-c", 'echo "$0 $1"; exit 7', "--json", "two words")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "--json two words\n"


def test_a_program_that_a_signal_ends_is_reported(root: Path) -> None:
    assert _run(root, "--priority", "be", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_the_environment_is_that_of_a_client(root: Path) -> None:
    script = 'echo "$LD_PRELOAD"; echo "$LD_LIBRARY_PATH"; ls "$ORION_ROOT/slots"; ls "$ORION_ROOT"/slots/*'
    done = _run(root, "--priority", "hp", "--", "sh", "-c", script)
    preload, library_path, gpu, *files = done.stdout.splitlines()
    assert preload.endswith("liborion_hook.so")
    assert library_path.split(":")[0].endswith("sim")
    assert gpu.startswith("GPU-")
    assert files == ["agent.sock", "notices.sock"]


def test_the_first_run_starts_an_agent_and_the_next_finds_it(root: Path) -> None:
    assert "started an agent" in _run(root, "--priority", "be", "--", "true").stderr
    assert _run(root, "--priority", "be", "--", "true").stderr == ""
    assert (root / "agent.log").exists()


def test_many_at_once_start_one_agent(root: Path) -> None:
    command = [*ORION, "run", "--simulated", "--root", str(root), "--priority", "be", "--", "true"]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    errors = [process.communicate(timeout=DEADLINE)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, errors
    assert sum("started an agent" in each for each in errors) == 1


def test_a_client_is_seen_by_top_and_its_slot_ends_with_it(
    root: Path, client: Callable[..., subprocess.Popen[str]]
) -> None:
    process = client("--priority", "be", "--memory", "1GiB")

    def seen() -> list[int]:
        shown = json.loads(_orion("top", "--json", "--root", str(root)).stdout or '{"gpus": []}')  # no agent yet
        return [each["process_id"] for gpu in shown["gpus"] for slot in gpu["slots"] for each in slot["clients"]]

    eventually(lambda: seen() == [process.pid])
    picture = _orion("top", "--once", "--root", str(root))
    assert picture.returncode == 0, picture.stderr
    for word in ("be-0", str(process.pid), "/1.0G", "Simulated GPU"):
        assert word in picture.stdout
    _end(process)
    eventually(lambda: not any(slot.role == 2 for gpu in agents.ask(root).gpus for slot in gpu.slots))


def test_a_second_hp_process_learns_who_holds_the_slot(
    root: Path, client: Callable[..., subprocess.Popen[str]]
) -> None:
    first = client("--priority", "hp")
    second = _run(root, "--priority", "hp", "--", "true")
    assert second.returncode == 1
    assert f"process {first.pid}" in second.stderr
    assert "--priority be" in second.stderr
    assert _run(root, "--priority", "be", "--", "true").returncode == 0


def test_the_hp_slot_is_free_again_after_its_client(root: Path) -> None:
    for _ in range(3):
        assert _run(root, "--priority", "hp", "--", "true").returncode == 0


def test_a_missing_gpu_is_named_with_the_existing_ones(root: Path) -> None:
    done = _run(root, "--priority", "be", "--gpu", "7", "--", "true")
    assert done.returncode == 2
    assert "'7'" in done.stderr
    assert "0 (GPU-" in done.stderr


def test_a_root_that_cannot_be_created_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = _run(tmp_path / "file", "--priority", "be", "--", "true")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_top_without_an_agent_names_the_command_to_start_one(tmp_path: Path) -> None:
    done = _orion("top", "--root", str(tmp_path))
    assert done.returncode == 1
    assert "orion agent" in done.stderr


def test_ctrl_c_ends_top_quietly(root: Path) -> None:
    _run(root, "--priority", "be", "--", "true")
    command = [*ORION, "top", "--root", str(root), "--interval", "0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert errors == ""
