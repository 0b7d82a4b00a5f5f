"""Trainers that do not fit together share a card: by plain managed memory, by memory that moves, by parking."""

import os
import time
from statistics import median
from typing import Any

from orion.bench import raw_data
from orion.bench.memory.scenario import Moving
from orion.bench.memory.stage import LEAD, Stage, Tenant
from orion.bench.memory.table import Row
from orion.bench.samples import completed_between

WAYS = ("unmanaged", "plain", "unified", "park")
""" The program's own cudaMallocManaged without Orion, and with it; oversubscribe unified; oversubscribe park. """


def measure(stage: Stage, setting: Moving) -> dict[str, Any]:
    """Return the times of the steps of one trainer alone, and of all by each way, in each round."""
    rounds = list[dict[str, Any]]()
    for number in range(setting.rounds):
        order = WAYS if number % 2 == 0 else WAYS[::-1]
        alone = {"alone": _run(stage, setting, "plain", 1)}
        rounds.append(alone | {way: _run(stage, setting, way, setting.tenants) for way in order})
    return {"rounds": rounds}


def _run(stage: Stage, setting: Moving, way: str, count: int) -> dict[str, Any]:
    stage.say(f"{way}, {count} of {setting.gib:g} GiB")
    tenants = list[Tenant]()
    for _ in range(count):
        tenants.append(stage.trainer(setting.gib, way=way))
        if way == "park":  # those that do not fit are set up in their turns
            stage.begun(tenants[-1])
        elif way != "unmanaged":
            stage.ready(tenants[-1])
    begin = time.monotonic() + LEAD
    for tenant in tenants:
        tenant.worker.command(do="loop", begin=begin, end=begin + setting.settle_seconds + setting.seconds)
    replies = stage.finish(tenants, {tenant.slot: 1 + (way == "park") for tenant in tenants})
    return {"steps": [raw_data.rounded(reply["ends"]) for reply in replies], "load": round(os.getloadavg()[0], 2)}


def _over(rate: float, other: float) -> float:
    return rate / other if other else float("inf")


def _each_second(setting: dict[str, Any], run: dict[str, Any]) -> list[float]:
    begin, end = setting["settle_seconds"], setting["settle_seconds"] + setting["seconds"]
    return [completed_between(ends, begin, end) / setting["seconds"] for ends in run["steps"]]


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures: medians of the rounds."""
    found, rates = list[Row](), dict[str, list[float]]()
    for way in ("alone", *WAYS):
        each = [_each_second(run["setting"], one[way]) for one in run["rounds"]]
        rates[way] = [sum(parts) for parts in each]
        of_all = ", ".join(f"{_over(rate, alone):.3f}" for rate, alone in zip(rates[way], rates["alone"], strict=True))
        parts = "; ".join(", ".join(f"{part / max(sum(one), 1e-9):.2f}" for part in one) for one in each)
        found.append(Row(f"{way}: steps a second, all", f"{median(rates[way]):.2f}"))
        if way != "alone":
            found += [Row(f"{way}: over one alone, by round", of_all), Row(f"{way}: each trainer's part", parts)]
    for one, other in (("unified", "unmanaged"), ("unified", "plain"), ("park", "unified")):
        over = median(_over(rate, its) for rate, its in zip(rates[one], rates[other], strict=True))
        found.append(Row(f"{one} over {other}", f"{over:.3f}", 1.0, over, at_least=True))
    return found
