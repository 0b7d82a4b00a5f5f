"""The CPU time of an agent whose slots park: while all tenants fit, or while they take turns on each GPU."""

import itertools
import time
from typing import Any

from orion.bench.memory.scenario import AgentCost
from orion.bench.memory.stage import Stage
from orion.bench.memory.table import Row

_TARGET = 0.01


def measure(stage: Stage, setting: AgentCost) -> dict[str, Any]:
    """Return the agent's CPU time in each part of the time. Nobody asks the agent for a snapshot meanwhile."""
    for number, uuid in enumerate(stage.gpu.uuids()):
        tenants = [stage.trainer(setting.gib, uuid=uuid) for _ in range(setting.tenants)]
        for tenant in tenants:
            stage.begun(tenant)
        stage.say(f"GPU {number} has its {len(tenants)} tenants")
    time.sleep(setting.settle_seconds)
    before, samples = _left(stage), [_sample(stage)]
    for _ in range(setting.parts):
        time.sleep(setting.seconds / setting.parts)
        samples.append(_sample(stage))
    gpus = stage.gpu.gpus()
    clients = sum(len(slot.clients) for gpu in gpus for slot in gpu.slots)
    parked = sum(slot.parking.state == "parked" for gpu in gpus for slot in gpu.slots)
    return {"samples": samples, "left": _left(stage) - before, "clients": clients, "parked": parked}


def _sample(stage: Stage) -> tuple[float, float]:
    return time.monotonic(), stage.gpu.agent_cpu_seconds()


def _left(stage: Stage) -> int:
    return sum(gpu.parkings.get("left", 0) for gpu in stage.gpu.gpus())


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures."""
    samples, setting = run["samples"], run["setting"]
    pairs = itertools.pairwise(samples)
    parts = [(cpu - cpu_before) / (at - at_before) for (at_before, cpu_before), (at, cpu) in pairs]
    (first, cpu_before), (last, cpu) = samples[0], samples[-1]
    mean = (cpu - cpu_before) / (last - first)
    return [
        Row("GPUs x slots; processes, and slots that were away at the end",
            f"{setting['gpus']} x {setting['tenants']}; {run['clients']}, {run['parked']}"),
        Row(f"times that one left, in {last - first:.0f} s", f"{run['left']}"),
        Row("CPU time of the agent, part of a core", f"{mean:.4f}", _TARGET, mean),
        Row("the same, in equal parts of the time", ", ".join(f"{part:.4f}" for part in parts)),
    ]  # fmt: skip
