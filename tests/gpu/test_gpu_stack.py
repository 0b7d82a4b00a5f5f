"""The hook under real software on a real GPU: libraries, compilers, captures; dynamic and static CUDA runtimes."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.bench.managed import ManagedGPU, machine

pytestmark = pytest.mark.gpu
PROGRAM = Path(__file__).with_name("stack_program.py")
SECONDS = 180

CUDART = r"""
#include <cuda_runtime.h>
#include <cstdio>
__global__ void add(int *x) { atomicAdd(x, 1); }
int main() {
    int *x, y = 0;
    cudaMalloc(&x, sizeof(int));
    cudaMemset(x, 0, sizeof(int));
    for (int i = 0; i < 1000; i++) add<<<4, 32>>>(x);
    cudaMemcpy(&y, x, sizeof(int), cudaMemcpyDeviceToHost);
    printf("%d\n", y);
    fflush(stdout);
    getchar(); /* keeps the process alive while the test queries the agent */
    return y == 128000 ? 0 : 1;
}
"""


@pytest.fixture
def managed() -> Iterator[ManagedGPU]:
    with machine(simulated=False) as environment, ManagedGPU(environment, simulated=False) as gpu:
        yield gpu


def launches(gpu: ManagedGPU) -> int:
    return max((client.launches for slot in gpu.snapshot().slots for client in slot.clients), default=0)


def eventually_launches(gpu: ManagedGPU, least: int) -> int:
    deadline = time.monotonic() + 10
    while (seen := launches(gpu)) < least and time.monotonic() < deadline:
        time.sleep(0.1)
    return seen


@pytest.mark.parametrize("role", ["hp", "be"])
def test_libraries_compilers_and_captures(managed: ManagedGPU, role: str) -> None:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)],
        env=managed.client_environment(role),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    most = 0
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        most = max(most, launches(managed))
        time.sleep(0.05)
    process.kill()
    out, err = process.communicate()
    results = json.loads(out.splitlines()[-1])
    assert all(result is True for result in results.values()), (results, err[-2000:])
    assert process.returncode == 0
    assert most > 500
    assert "orion:" not in err


@pytest.mark.parametrize("kind", ["shared", "static"])
@pytest.mark.parametrize("role", ["hp", "be"])
def test_cuda_runtimes(managed: ManagedGPU, tmp_path: Path, role: str, kind: str) -> None:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    source, program = tmp_path / "add.cu", tmp_path / "add"
    source.write_text(CUDART)
    subprocess.run([nvcc, "-arch=native", f"-cudart={kind}", "-o", str(program), str(source)], check=True)
    environment = managed.client_environment(role)
    environment["LD_LIBRARY_PATH"] = f"/usr/local/cuda/lib64:{os.environ.get('LD_LIBRARY_PATH', '')}"
    process = subprocess.Popen(
        [str(program)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "128000"
    assert eventually_launches(managed, 1000) >= 1000
    _, err = process.communicate("\n", timeout=SECONDS)
    assert process.returncode == 0
    assert err == ""
