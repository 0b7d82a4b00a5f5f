"""`orion top` with a program that launches kernels at a steady rate, on the simulated GPU."""

import re
from pathlib import Path

import pytest

from tests.cli.orion_command import StartClient, orion

PAUSE_SECONDS = 0.005
# Launches a kernel at intervals until its standard input ends. Prints a line after the first few.
CLIENT = f"""
import ctypes, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
memory = ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(256 << 20)) == 0
image = b"orion-sim 1\\nkernel work duration_us=10 sms=1 params=\\n"
assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"work") == 0
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
number = 0
while not ended.is_set():
    assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
    number += 1
    if number == 100:
        print("ready", flush=True)
    time.sleep({PAUSE_SECONDS})
"""


@pytest.fixture(params=["hp", "be"])
def launching(request: pytest.FixtureRequest, client: StartClient) -> str:
    """Start a client that launches kernels; return the name of its slot."""
    client("--priority", request.param, "--memory", "512MiB", source=CLIENT)
    return f"{request.param}-0"


def test_once_shows_the_true_rate_of_launches_and_the_memory(launching: str, root: Path) -> None:
    done = orion("top", "--once", "--root", root)
    assert done.returncode == 0, done.stderr
    [row] = [line for line in done.stdout.splitlines() if launching in line and "python" in line]
    rate = re.search(r"(?:idle|running|busy|closing|linger|gated)\s+([\d,]+)", row)
    assert rate is not None, row
    assert 0 < int(rate[1].replace(",", "")) <= 1 / PAUSE_SECONDS + 1
    assert "256M/512M" in row
