"""Compares the GPU time that be reports with NVML's: `python -m measurements.overhead.measured_usage --output F`.

Each workload runs alone under the hook, in a closed loop. Meanwhile NVML is asked ten times a second in which part of
its last period a kernel was on the GPU, and the agent what the client has reported. The two differ where a program
leaves gaps: the hook counts gaps under 50 us, and NVML looks at whole periods.

It needs an NVIDIA GPU and torch, and nobody else on the GPU.
"""

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pynvml

from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, positive, say
from orion.bench.managed import ManagedGPU, machine
from orion.bench.workers.crew import Crew
from orion.bench.workloads import Load, load
from orion.errors import OrionError

WORKLOADS: tuple[Load, ...] = (
    ("long-kernel", {"ms": 0.1, "kernels": 10, "counts": "work"}),
    ("resnet50-training", {"batch": 128, "stall": 0.5}),
    ("resnet50-inference", {"batch": 32, "mode": "graph"}),
)
PAUSE, LEAD, EACH = 0.3, 2.0, 0.1
""" Seconds before a loop begins, of a loop before it is measured, and between two questions to NVML. """


def measure(kind: str, options: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Run one workload alone; return both parts of the time, and NVML's answers in percent."""
    with ExitStack() as stack:
        managed = stack.enter_context(ManagedGPU(stack.enter_context(machine(simulated=False)), simulated=False))
        crew = stack.enter_context(Crew())
        environment = managed.client_environment("be")
        worker = crew.start(kind, *load(kind, options, simulated=False), environment)
        crew.ready(worker)
        managed.wait_for_process(worker.process_id)
        begin = time.monotonic() + PAUSE
        worker.command(do="loop", begin=begin, end=begin + LEAD + seconds + PAUSE)
        time.sleep(PAUSE + LEAD)
        device = pynvml.nvmlDeviceGetHandleByUUID(managed.gpu.uuid)
        before, since = _reported(managed), time.monotonic()
        percents = []
        while time.monotonic() < since + seconds:
            percents.append(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
            time.sleep(EACH)
        elapsed, reported = time.monotonic() - since, _reported(managed) - before
        crew.gather(worker, seconds=60.0)
    return {
        "workload": kind,
        "options": options,
        "reported": reported / elapsed,
        "nvml": sum(percents) / len(percents) / 100,
        "percents": percents,
    }


def _reported(managed: ManagedGPU) -> float:
    return sum(slot.usage.measured_seconds for slot in managed.snapshot().slots)


def main(arguments: list[str]) -> None:
    """Measure, write the file, and print one line for each workload."""
    parser = OneSentenceParser(prog="python -m measurements.overhead.measured_usage", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="the file of raw data")
    parser.add_argument("--seconds", type=positive, default=30.0, help="how long each workload is measured")
    parser.add_argument("--most", type=int, default=len(WORKLOADS), help="only so many of the workloads")
    options = parser.parse_args(arguments)
    pynvml.nvmlInit()
    raw = {**raw_data.header("measurements.overhead.measured_usage"), "runs": []}
    for kind, fields in WORKLOADS[: options.most]:
        run = measure(kind, fields, options.seconds)
        raw["runs"].append(run)
        raw_data.write(options.output, raw)
        say(f"{kind}: reported {100 * run['reported']:.1f} %, NVML {100 * run['nvml']:.1f} %")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OrionError as error:
        sys.exit(str(error))
