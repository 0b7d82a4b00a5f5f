"""Measures what one workload does to a GPU: power, clock, lengths of its kernels, and its speed after matrix products.

    python measurements/probes/work_alone.py FILE.json.gz      on a machine with torch and an otherwise idle NVIDIA GPU

The figures are constants of orion.simulation.gpu. No run has two processes, so no figure depends on a scheduler.
`alone`: ends of steps after a second of rest, with (time, mW, MHz) every few ms. `kernels`: (begin, length) in us.
`turns`: products for `on` ms, then requests for `off` ms, and so on: the times of both.
"""

import gzip
import itertools
import json
import sys
import threading
import time
from typing import Any

import pynvml as nvml
import torch
from torch.profiler import ProfilerActivity, profile

from orion.bench.workloads import make

HP = [
    ("resnet50-inference", {"batch": 64}), ("bert-inference", {"batch": 16}), ("gpt-decode", {"batch": 1, "tokens": 8}),
    ("gpt-decode", {"batch": 32, "tokens": 8}), ("resnet50-inference", {"batch": 4}), ("mobilenetv2-inference", {}),
    ("gpt-prefill", {}), ("gpt-decode-unsynchronised", {"batch": 1, "tokens": 16}),
]  # fmt: skip
BE = [
    ("resnet50-training", {}), ("bert-training", {}), ("gpt-training", {}), ("gemm", {"size": 2048}),
    ("gemm", {"size": 4096}), ("gemm", {"size": 8192}), ("elementwise", {}), ("long-kernel", {}),
]  # fmt: skip
TURNS = [(300, 200, 5), (20, 20, 40), (4, 5, 150), (13, 8, 70)]


def alone(work: Any, seconds: float = 2.0) -> dict[str, Any]:
    """Return ends of steps, and samples of power and clock."""
    gpu, samples, ends, done = nvml.nvmlDeviceGetHandleByIndex(0), [], [], threading.Event()

    def sample() -> None:
        while not done.wait(0.005):
            power = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])[0].value.uiVal
            samples.append((time.perf_counter() - begin, power, nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)))

    work.finish()
    time.sleep(1)
    begin, watcher = time.perf_counter(), threading.Thread(target=sample)
    watcher.start()
    with work.throughout():
        while time.perf_counter() - begin < seconds:
            work.step()
            ends.append(time.perf_counter() - begin)
        work.finish()
    done.set()
    watcher.join()
    return {"ends": ends, "samples": samples}


def kernels(work: Any) -> list[tuple[float, float]]:
    """Return begin and length of each kernel of three steps."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen, work.throughout():
        for _ in range(3):
            work.step()
        work.finish()
    found = [each for each in seen.events() or [] if each.device_type == torch.autograd.DeviceType.CUDA]
    return [(each.time_range.start, each.time_range.elapsed_us()) for each in found]


def turns(gemm: Any, hp: Any, on: float, off: float, times: int) -> list[list[list[float]]]:
    """Return the times of steps in each turn, in ms: of products, of requests."""
    rows = []
    for _ in range(times):
        row = []
        for work, span in ((gemm, on), (hp, off)):
            steps, begin = [time.perf_counter()], time.perf_counter()
            with work.throughout():
                while steps[-1] - begin < span / 1e3:
                    work.step()
                    steps.append(time.perf_counter())
            row.append([round(1e3 * (b - a), 4) for a, b in itertools.pairwise(steps)])
        rows.append(row)
    return rows


def main() -> None:
    """Measure all workloads."""
    nvml.nvmlInit()
    gemm, found = make("gemm", {"size": 8192, "products": 1}), []
    for kind, options in HP + BE:
        work: Any = make(kind, options)
        row = {"work": kind, "options": options, "alone": alone(work), "kernels": kernels(work)}
        if (kind, options) in HP[:5]:
            row["turns"] = [[*each, turns(gemm, work, *each)] for each in TURNS]
        found.append({**row, "details": work.details})
        print(kind, options, len(row["kernels"]), flush=True)
        del work
        torch.cuda.empty_cache()
        raw = {"gpu": torch.cuda.get_device_name(), "driver": nvml.nvmlSystemGetDriverVersion(), "work": found}
        with gzip.open(sys.argv[1], "wt") as file:
            json.dump(raw, file)


if __name__ == "__main__":
    main()
