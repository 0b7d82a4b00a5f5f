"""Shows what programs see in a slot with a memory limit: `python -m measurements.memory.view --output FILE.jsonl`.

PyTorch, pynvml and nvidia-smi run in one slot. Each line has what one of them says of the total, the used and the free
memory, and what the agent counts for the slot at that moment. Then a program takes 0.95 of what it sees free, at once
and in pieces, by each of PyTorch's allocators. At last it says what NVML charges to a process that imports another
one's memory, and by which steps a pool of the driver grows.

It needs an NVIDIA GPU, torch, pynvml and nvidia-smi, and nobody else on the GPU.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from measurements.memory.limited_training import ALLOCATORS
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, say
from orion.bench.managed import ManagedGPU, machine

LIMIT = 20 << 30
MIB = 1 << 20
LONGEST = 40
""" Seconds that a program may take. """

SEES = """
import json, subprocess, sys, time, torch, pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
def look(what):
    free, total = torch.cuda.mem_get_info()
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    smi = subprocess.run(["nvidia-smi", "--query-gpu=memory.total,memory.used,memory.free",
        "--format=csv,noheader,nounits"], capture_output=True, text=True)
    print(json.dumps({"after": what, "torch_total": total, "torch_free": free,
        "properties_total": torch.cuda.get_device_properties(0).total_memory,
        "nvml": [memory.total, memory.used, memory.free], "nvml_processes": [each.usedGpuMemory for each in listed],
        "smi_mib": smi.stdout.strip(), "smi_exit": smi.returncode}), flush=True)
    sys.stdin.readline()
torch.zeros(1, device="cuda"); torch.cuda.synchronize(); time.sleep(2.5)
look("begin")
held = torch.empty(5 << 30, dtype=torch.uint8, device="cuda"); time.sleep(2.5)
look("5 GiB")
"""

TAKES = """
import json, sys, torch
torch.zeros(1, device="cuda")
piece = int(sys.argv[1])
for turn in range(3):
    free, total = torch.cuda.mem_get_info()
    left, held = int(free * 0.95), []
    while left > 0:
        size = min(piece, left) if piece else left
        held.append(torch.empty(size, dtype=torch.uint8, device="cuda")); left -= size
    torch.cuda.synchronize()
    after = torch.cuda.mem_get_info()[0]
    print(json.dumps({"turn": turn, "free": free, "took": int(free * 0.95), "after": after}), flush=True)
    del held
    torch.cuda.empty_cache()
"""

POOL = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    assert status == 0, (name, status)
context, device, pool = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
call("cuInit", 0); call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device); call("cuCtxSetCurrent", context)
call("cuDeviceGetMemPool", ctypes.byref(pool), device)
keep = ctypes.c_uint64(2**64 - 1)
call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(keep))
steps, last = [], 0
for size in (1, 1 << 20, 8 << 20, 31 << 20, 33 << 20, 64 << 20, 65 << 20, 200 << 20):
    at, held = ctypes.c_uint64(), ctypes.c_uint64()
    call("cuMemAllocAsync", ctypes.byref(at), ctypes.c_size_t(size), None)
    call("cuMemPoolGetAttribute", pool, 5, ctypes.byref(held))
    steps.append([size, held.value - last]); last = held.value
print(json.dumps({"pool_steps": steps}), flush=True)
"""

IMPORTS = """
import json, os, sys, torch, torch.multiprocessing as processes
def child(queue, done):
    import faulthandler; faulthandler.dump_traceback_later(25)
    held = queue.get(); held[:8].sum().item()
    print(json.dumps({"role": "importer", "pid": os.getpid()}), flush=True)
    done.wait(30)
if __name__ == "__main__":
    spawned = processes.get_context("spawn")
    queue, done = spawned.Queue(), spawned.Event()
    held = torch.ones(3 << 30, dtype=torch.uint8, device="cuda")
    other = spawned.Process(target=child, args=(queue, done)); other.start()
    import faulthandler; faulthandler.dump_traceback_later(25)
    queue.put(held)
    print(json.dumps({"role": "owner", "pid": os.getpid()}), flush=True)
    sys.stdin.readline()
    done.set(); other.join()
"""


class Program(NamedTuple):
    """What runs in the slot."""

    name: str
    text: str
    words: tuple[str, ...] = ()
    allocator: str = ""
    """ PyTorch's setting of its allocator; empty: the native one. """
    is_hooked: bool = True


class Slot:
    """A slot with a limit, and what the agent counts in it."""

    def __init__(self, stack: ExitStack, base: dict[str, str], folder: Path) -> None:
        self._managed = stack.enter_context(ManagedGPU(base, simulated=False))
        self._environment = self._managed.client_environment("be", memory={"memory_limit_bytes": LIMIT})
        self._folder, self._base = folder, base

    def counted(self) -> list[int]:
        """Return what the agent counts for each process, in bytes."""
        return [client.memory_bytes for slot in self._managed.snapshot().slots for client in slot.clients]

    def run(self, program: Program) -> tuple[list[dict[str, Any]], str]:
        """Run a program; after each of its lines note what the agent counts. Return the lines, and its error."""
        file = self._folder / "program.py"
        file.write_text(program.text)
        chosen = {"PYTORCH_CUDA_ALLOC_CONF": program.allocator} if program.allocator else {}
        process = subprocess.Popen(
            ["timeout", str(LONGEST), sys.executable, "-X", "faulthandler", str(file), *program.words],
            env={**(self._environment if program.is_hooked else self._base), **chosen},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append({**json.loads(line), "agent": self.counted()})
            if "role" not in lines[-1] or len(lines) == 2:
                lines[-1]["driver"] = on_device()
                process.stdin.write("\n")
                process.stdin.flush()
        return lines, process.communicate()[1][-3000:] if process.wait() else ""


def on_device() -> Mapping[str, Any]:
    """Return what NVML says to a process without the hook."""
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    listed = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    return {
        "used": pynvml.nvmlDeviceGetMemoryInfo(device).used,
        "processes": {each.pid: each.usedGpuMemory for each in listed},
    }


def main() -> int:
    """Run all programs, and write a line for each thing that they say."""
    parser = OneSentenceParser(prog="python -m measurements.memory.view", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the file of raw data")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    pynvml.nvmlInit()
    with ExitStack() as stack, options.output.open("w") as file:
        base = stack.enter_context(machine(simulated=False))
        slot = Slot(stack, base, options.output.parent)
        print(json.dumps({**raw_data.header("measurements.memory.view"), "limit": LIMIT}), file=file, flush=True)
        programs = [Program("sees", SEES), Program("pool", POOL)]
        for name, allocator in ALLOCATORS.items():
            for piece in (0, 64 * MIB):
                programs.append(Program(f"takes {name} {piece >> 20}", TAKES, (str(piece),), allocator))
        programs += [Program("imports", IMPORTS), Program("imports without the hook", IMPORTS, is_hooked=False)]
        for program in programs:
            lines, error = slot.run(program)
            print(json.dumps({"program": program.name, "lines": lines, "error": error}), file=file, flush=True)
            say(f"{program.name}: {error or 'done'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
