"""Measures how processes leave the GPU by the driver's checkpoint and return: what works, what not, what it costs.

    python -m measurements.probes.checkpoint checkpoint.jsonl       as root, on a machine with torch and an NVIDIA GPU
    python -m measurements.probes.checkpoint out.jsonl --simulated --sizes 8 --stay 0.05 --without torch

It takes ten minutes at most. Each case is a process of its own (measurements/checkpoints), which changes itself:
without Orion, then with its hook as a best-effort client of a private agent. A case that fails or takes too long does
not end the others. No process is killed that was restored: a report says that this hung a host. It ends by itself.

Each line of the output is one of a case's lines with `case` and `role`; or what NVML shows (`gpu_used`, `listed`: the
number of processes, `own`: the case's own bytes) whenever it changes; or how the case ended. All times have one clock.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pynvml as nvml

from measurements.checkpoints.cases import CASES
from measurements.checkpoints.torch_cases import ALLOCATORS
from orion.bench.managed import ManagedGPU, machine

ROOT = Path(__file__).parents[2]
LIMIT_S, GIB_S, ALL_S = 40.0, 4.0, 570.0
""" Seconds: of a case, of a case for each GiB that it moves, of everything. """
NOBODY = 65534
AS_NOBODY = "as-nobody"
LOOK_S = 0.02


class Report:
    """The output: lines of JSON, written at once, from several threads."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._lock = file, threading.Lock()

    def add(self, line: Mapping[str, Any]) -> None:
        """Write one line."""
        with self._lock:
            print(json.dumps(line), file=self._file, flush=True)


class Watch(threading.Thread):
    """Reports what NVML shows of the first GPU, whenever it changes."""

    def __init__(self, report: Report, names: Mapping[str, Any], process: int) -> None:
        super().__init__(daemon=True)
        self._report, self._names, self._process = report, names, process
        self._ends = threading.Event()

    def run(self) -> None:
        """Look until `end`."""
        last: dict[str, Any] = {}
        with contextlib.suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(0)
            while not self._ends.wait(LOOK_S):
                listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                own = sum(each.usedGpuMemory or 0 for each in listed if each.pid == self._process)
                seen = {"gpu_used": nvml.nvmlDeviceGetMemoryInfo(handle).used, "listed": len(listed), "own": own}
                if seen != last:
                    self._report.add({**self._names, **seen, "at_ns": time.monotonic_ns()})
                last = seen

    def end(self) -> None:
        """Stop looking."""
        self._ends.set()
        self.join()


def limit_of(case: str) -> float:
    """Seconds that a case may take."""
    size = case.partition(":")[2]
    return LIMIT_S + 2 * GIB_S * int(size or 0) / 1024 + 2 * GIB_S * 3


def run_case(report: Report, names: dict[str, str], environment: Mapping[str, str], stay_s: float) -> None:
    """Run one case to its end, and report its lines."""
    case, limit = names["case"], limit_of(names["case"])
    as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if case == AS_NOBODY else {}
    child = "plain:64" if case == AS_NOBODY else case
    command = [sys.executable, "-m", "measurements.checkpoints", child, "--stay", str(stay_s), "--limit", str(limit)]
    allocator = {"PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS.get(case, ""), "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    began, restored = time.monotonic(), threading.Event()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**environment, **allocator},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **as_nobody,  # type: ignore[call-overload]
    )
    watch = Watch(report, names, process.pid)
    watch.start()
    reader = threading.Thread(target=read, args=(report, names, process.stdout, restored), daemon=True)
    reader.start()
    errors: list[str] = []
    threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True).start()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(limit + 10)
    running = process.poll() is None
    if running and not restored.is_set():
        process.kill()
    reader.join(5)
    watch.end()
    ended = {"exit": process.poll(), "left_running": running and restored.is_set(), "errors": "".join(errors)[-600:]}
    report.add({**names, **ended, "case_s": round(time.monotonic() - began, 3)})


def read(report: Report, names: dict[str, str], lines: IO[str], restored: threading.Event) -> None:
    """Report a case's lines; note whether it was restored."""
    for line in lines:
        with contextlib.suppress(ValueError):
            fields = json.loads(line)
            if fields.get("stage") == "Restore":
                restored.set()
            report.add({**names, **fields})


@contextlib.contextmanager
def roles(simulated: bool, chosen: list[str]) -> Iterator[Iterator[tuple[str, dict[str, str]]]]:
    """Yield the roles, each with its clients' environment."""
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(machine(simulated))
        os.environ.update({name: value for name, value in plain.items() if name.startswith("ORION_SIM_")})

        def each() -> Iterator[tuple[str, dict[str, str]]]:
            if "none" in chosen:
                yield "none", plain
            if "hook" in chosen:
                yield "hook", stack.enter_context(ManagedGPU(plain, simulated)).client_environment("be")

        yield each()


def main() -> int:
    """Run all cases in both roles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="file to which the lines are added")
    parser.add_argument("--simulated", action="store_true", help="use a private simulated GPU")
    parser.add_argument("--sizes", default="1024,5120,20480", help="MiB of the cases of cost, with commas")
    parser.add_argument("--stay", type=float, default=2.0, help="seconds away from the GPU")
    parser.add_argument("--roles", default="none,hook", help="none, hook or both")
    parser.add_argument("--without", default="", help="leave out the cases whose names begin so, with commas")
    options = parser.parse_args()
    begins, left_out = time.monotonic(), tuple(filter(None, options.without.split(",")))
    last = ("room",)
    names = [f"plain:{size}" for size in options.sizes.split(",")] + [case for case in CASES if case not in last]
    names += [*ALLOCATORS, *([AS_NOBODY] if os.getuid() == 0 and not options.simulated else []), *last]
    with open(options.output, "a") as file, roles(options.simulated, options.roles.split(",")) as all_roles:
        report = Report(file)
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlInit()
        for role, environment in all_roles:
            for case in (name for name in names if not (left_out and name.startswith(left_out))):
                which = {"case": case, "role": role}
                if time.monotonic() - begins + limit_of(case) > ALL_S:
                    report.add({**which, "left_out": "no time is left"})
                    continue
                run_case(report, which, environment, options.stay)
    return 0


if __name__ == "__main__":
    sys.exit(main())
