"""Trainers that do not fit together share a card: by plain managed memory, by memory that moves, by parking."""

import time
from typing import Any

from orion.bench import raw_data
from orion.bench.memory.scenario import Moving
from orion.bench.memory.stage import LEAD, Stage, Tenant
from orion.bench.memory.table import Row
from orion.bench.samples import completed_between

WAYS = ("plain", "unified", "park")
""" The program's own cudaMallocManaged; oversubscribe unified; oversubscribe park. """


def measure(stage: Stage, setting: Moving) -> dict[str, Any]:
    """Return the times of the steps of one trainer alone, and of all by each way."""
    found = {"alone": _run(stage, setting, "plain", 1)}
    return found | {way: _run(stage, setting, way, setting.tenants) for way in WAYS}


def _run(stage: Stage, setting: Moving, way: str, count: int) -> dict[str, Any]:
    stage.say(f"{way}, {count} of {setting.gib:g} GiB")
    tenants = list[Tenant]()
    for _ in range(count):
        tenants.append(stage.trainer(setting.gib, way=way))
        if way == "park":  # those that do not fit are set up in their turns
            stage.begun(tenants[-1])
        else:
            stage.ready(tenants[-1])
    begin = time.monotonic() + LEAD
    for tenant in tenants:
        tenant.worker.command(do="loop", begin=begin, end=begin + setting.settle_seconds + setting.seconds)
    replies = stage.finish(tenants, {tenant.slot: 1 + (way == "park") for tenant in tenants})
    return {"steps": [raw_data.rounded(reply["ends"]) for reply in replies]}


def _over(rate: float, other: float) -> float:
    return rate / other if other else float("inf")


def rows(run: dict[str, Any]) -> list[Row]:
    """Return the figures."""
    setting = run["setting"]
    begin, end = setting["settle_seconds"], setting["settle_seconds"] + setting["seconds"]

    def each_second(way: str) -> list[float]:
        return [completed_between(ends, begin, end) / setting["seconds"] for ends in run[way]["steps"]]

    alone = sum(each_second("alone"))
    rates = {way: sum(each_second(way)) for way in WAYS}
    found = [Row("steps a second, one alone", f"{alone:.2f}")]
    for way, rate in rates.items():
        parts = ", ".join(f"{each / alone:.2f}" for each in each_second(way))
        found.append(Row(f"{way}: steps a second; each over one alone", f"{rate:.2f}; {parts}"))
    gain = _over(rates["unified"], rates["plain"])
    found.append(Row("unified over plain", f"{gain:.2f}", 1.0, gain, at_least=True))
    over = _over(rates["park"], rates["unified"])
    found.append(Row("park over unified", f"{over:.3f}", 1.0, over, at_least=True))
    return found
