"""`orion profile` on a real GPU: CUPTI's real records, and the driver's own answers about occupancy."""

import contextlib
import ctypes
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.cli.profiling.occupancy import Limits, blocks_per_sm
from orion.crds.profile import GPUProfile, Kernel
from orion.crds.profile_file import parse_profile

pytestmark = pytest.mark.gpu
SECONDS = 180
ORION = [sys.executable, "-m", "orion.cli", "profile", "kernels"]

PROGRAM = """
import subprocess, sys, torch
a = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
b = torch.empty_like(a)
def work():
    for _ in range(10):
        torch.mm(a, a, out=b)
for _ in range(5):
    work()
torch.cuda.synchronize()
stream = torch.cuda.Stream()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    work()
for _ in range(20):
    graph.replay()
torch.cuda.synchronize()
if len(sys.argv) < 2:
    subprocess.run([sys.executable, __file__, "child"], check=True)
sys.exit(6)
"""

ENDLESS = """
import time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.empty_like(a)
done = 0
events = []
while True:
    torch.mm(a, a, out=b)
    event = torch.cuda.Event()
    event.record()
    events.append(event)
    if len(events) > 64:
        events.pop(0).synchronize()
        done += 1
    print(f"{time.monotonic()} {done}", flush=True)
"""


def _profile(folder: Path, program: str, *options: str) -> tuple[subprocess.CompletedProcess[str], GPUProfile]:
    (folder / "program.py").write_text(program)
    command = [*ORION, "-o", "profile.yaml", *options, "--", sys.executable, str(folder / "program.py")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert (folder / "profile.yaml").exists(), done.stderr
    return done, parse_profile((folder / "profile.yaml").read_text(), "profile.yaml")


def _gemm(profile: GPUProfile) -> Kernel:
    return max(profile.spec.kernels, key=lambda kernel: kernel.total_share)


def test_eager_graphs_and_children_are_all_counted(tmp_path: Path) -> None:
    done, profile = _profile(tmp_path, PROGRAM, "--csv", "launches.csv")
    assert "no profile" not in done.stderr
    gemm = _gemm(profile)
    print(f"\nmeasured: {gemm.name[:60]}: {gemm.duration_ns.median / 1e3:.1f} us, {gemm.sms_needed} SMs")
    assert re.search("gemm|cutlass|nvjet", gemm.name)
    assert gemm.launches == 2 * (50 + 200)  # the capture itself runs nothing
    # 17.2 GFLOP: no GPU computes that in 10 us; a slow GPU takes 1 ms.
    assert 10_000 < gemm.duration_ns.median < 1_000_000
    assert gemm.duration_ns.median <= gemm.duration_ns.p95
    assert gemm.sms_needed is not None
    assert gemm.sms_needed_uncapped is not None
    assert profile.spec.gpu.sms is not None
    assert 1 <= gemm.sms_needed <= profile.spec.gpu.sms
    assert profile.spec.source.processes == 2
    assert sum(kernel.total_share for kernel in profile.spec.kernels) == pytest.approx(1, abs=0.001)
    rows = (tmp_path / "launches.csv").read_text().splitlines()
    assert len(rows) == 1 + sum(kernel.launches for kernel in profile.spec.kernels)


def test_the_programs_status_is_passed_through(tmp_path: Path) -> None:
    done, _ = _profile(tmp_path, PROGRAM.replace("if len(sys.argv) < 2:", "if False:"))
    assert done.returncode == 6


def test_the_profile_of_a_killed_program_lacks_only_its_last_launches(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ENDLESS)
    shell = f"{sys.executable} {program} > seen & echo $! > pid; wait $!"
    command = [*ORION, "-o", "profile.yaml", "--", "sh", "-c", shell]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + SECONDS
    seen: list[tuple[float, int]] = []
    while len(seen) < 2 or seen[-1][0] - seen[0][0] < 6:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
        with contextlib.suppress(FileNotFoundError):
            complete = [
                line for line in (tmp_path / "seen").read_text().splitlines(keepends=True) if line.endswith("\n")
            ]
            seen = [(float(line.split()[0]), int(line.split()[1])) for line in complete]
    os.kill(int((tmp_path / "pid").read_text()), 9)
    _, said = process.communicate(timeout=SECONDS)
    profile = parse_profile((tmp_path / "profile.yaml").read_text(), "profile.yaml")
    before = max(count for when, count in seen if when < seen[-1][0] - 1.5)
    print(f"\nmeasured: {_gemm(profile).launches} of {seen[-1][1]} launches kept of a killed program")
    assert _gemm(profile).launches >= before > 0, said


# -- Occupancy -------------------------------------------------------------------------------------------------------
_ATTRIBUTES = {
    "sms": 16,
    "threads_per_sm": 39,
    "blocks_per_sm": 106,
    "registers_per_sm": 82,
    "shared_per_sm": 81,
    "reserved_shared_per_block": 111,
    "warp": 10,
    "major": 75,
}


def _entry(live: int, shared: int) -> str:
    """Return PTX of a kernel that keeps `live` values across a barrier, with `shared` bytes of static shared memory."""
    loads = "".join(f"ld.volatile.global.f32 %f{i}, [%rd2+{4 * i}];\n" for i in range(live))
    stores = "".join(f"st.volatile.global.f32 [%rd2+{4 * i}], %f{live - 1 - i};\n" for i in range(live))
    declared = f".shared .align 16 .b8 kept[{shared}];\nst.volatile.shared.f32 [kept], %f0;\n" if shared else ""
    head, _, use = declared.partition("\n")
    return (
        f".visible .entry live_{live}_{shared}(.param .u64 at)\n{{\n.reg .f32 %f<{live}>;\n.reg .b64 %rd<3>;\n{head}\n"
        f"ld.param.u64 %rd1, [at];\ncvta.to.global.u64 %rd2, %rd1;\n{loads}{use}bar.sync 0;\n{stores}ret;\n}}\n"
    )


def _check(result: int) -> None:
    assert result == 0, f"CUDA error {result}"


@pytest.fixture(scope="module")
def driver() -> Iterator[ctypes.CDLL]:
    """The driver, with a current context."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    _check(cuda.cuInit(0))
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _check(cuda.cuCtxSetCurrent(context))
    yield cuda
    _check(cuda.cuDevicePrimaryCtxRelease_v2(0))


def test_our_occupancy_equals_the_drivers(driver: ctypes.CDLL) -> None:
    def attribute(number: int) -> int:
        value = ctypes.c_int()
        _check(driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0))
        return value.value

    limits = Limits(**{name: attribute(number) for name, number in _ATTRIBUTES.items()})
    kinds = [(live, shared) for live in (4, 24, 40, 56, 80, 120, 160, 200, 240) for shared in (0, 1000, 20_000)]
    text = ".version 7.8\n.target sm_80\n.address_size 64\n" + "".join(_entry(*kind) for kind in kinds)
    module = ctypes.c_void_p()
    _check(driver.cuModuleLoadData(ctypes.byref(module), text.encode()))
    compared, wrong = 0, []
    for live, shared in kinds:
        function, value = ctypes.c_void_p(), ctypes.c_int()
        _check(driver.cuModuleGetFunction(ctypes.byref(function), module, f"live_{live}_{shared}".encode()))
        _check(driver.cuFuncGetAttribute(ctypes.byref(value), 4, function))
        registers = value.value
        _check(driver.cuFuncGetAttribute(ctypes.byref(value), 1, function))
        static = value.value
        _check(driver.cuFuncSetAttribute(function, 8, 160 * 1024))  # the largest dynamic shared memory
        for threads in (1, 32, 33, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024):
            for dynamic in (0, 1, 4096, 16_384, 50_000, 65_536, 100_000, 160 * 1024):
                blocks = ctypes.c_int()
                result = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
                    ctypes.byref(blocks), function, threads, ctypes.c_size_t(dynamic)
                )
                if result != 0:
                    continue
                ours = blocks_per_sm(limits, threads, registers, static + dynamic)
                compared += 1
                if ours != blocks.value:
                    wrong.append((registers, static, threads, dynamic, blocks.value, ours))
    print(f"\nmeasured: {compared} occupancies, {len(wrong)} differ")
    assert compared > 1000
    assert wrong == [], "registers, static, threads, dynamic, the driver's, ours"
