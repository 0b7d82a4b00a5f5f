"""`orion park`, `orion unpark` and the memory options of `orion run`, with a real agent of the simulated GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orion.node_agent.api.client import AgentClient
from tests.cli.orion_command import ORION, orion, run


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--priority", "hp", "--park"), "--park is for --priority be"),
        (("--priority", "be", "--memory-wait", "3"), "--memory-wait is for --priority hp"),
        (("--priority", "be", "--memory", "1GiB", "--memory-request", "2GiB"), "--memory-request is above --memory"),
        (("--priority", "be", "--memory", "2GiB", "--memory-request", "1GiB"), "add --park"),
        (("--id", "a", "--park"), "--park cannot be given with --id"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_a_sentence(root: Path, options: tuple[str, ...], sentence: str) -> None:
    done = run(root, *options)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_slot_that_cannot_leave_is_named_with_the_reason(root: Path) -> None:
    assert run(root, "--priority", "hp", "--memory-wait", "2.5").returncode == 0
    with AgentClient(root) as agent:
        (gpu,) = agent.snapshot().gpus
        assert agent.set_grant(gpu.uuid, "hp-0", memory_wait_ms=1).memory_wait_ms == 1
    nobody = orion("park", "be-7", "--root", str(root))
    assert nobody.returncode == 1
    assert "no GPU of this agent has the slot or process 'be-7': `orion top` lists them" in nobody.stderr
    refused = orion("park", "hp-0", "--root", str(root))
    assert refused.returncode == 1
    assert "may not leave the GPU's memory: it is for hp" in refused.stderr


def test_a_program_leaves_and_comes_back_by_hand(root: Path) -> None:
    source = (
        "import ctypes, sys\n"
        "cuda, context, memory = ctypes.CDLL('libcuda.so.1'), ctypes.c_void_p(), ctypes.c_uint64()\n"
        "cuda.cuInit(0); cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cuda.cuCtxSetCurrent(context)\n"
        "result = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 30))\n"
        "cuda.cuMemsetD8_v2(memory, 1, ctypes.c_size_t(4096)); print(result, flush=True); sys.stdin.read()\n"
    )
    command = [*ORION, "run", "--simulated", "--root", str(root), "--priority", "be", "--memory", "4GiB", "--park"]
    with subprocess.Popen(
        [*command, "--", sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "0\n"
        away = orion("park", str(program.pid), "--json", "--root", str(root))
        assert away.returncode == 0, away.stderr
        (slot,) = json.loads(away.stdout)
        assert (slot["parking"]["state"], slot["parking"]["wished"]) == ("parked", True)
        assert slot["parking"]["bytes"] >= 1 << 30
        assert "in host memory (by orion park)" in orion("top", "--once", "--root", str(root)).stdout
        back = orion("unpark", "be-0", "--root", str(root))
        assert (back.returncode, back.stdout.partition(": ")[2]) == (0, "on the GPU\n"), back.stderr
        program.communicate("")
        assert program.returncode == 0
