"""Judges what it costs when threads of one process are separate clients, from the raw data of `orion bench threads`."""

import json
from pathlib import Path

from orion.bench.colocation.summary import Status, Verdict

FILE = "threads_cost.json"
TITLE = "cost of threads"
ASKED = "a launch takes <= 1 us longer than on a stream without a client; two clients' 100 GEMMs 2048 take no longer"
MOST_NS = 1000.0
NOISE = 1.02
JUDGED = ("two hp", "be and hp, gate", "be and hp, orion 1")
"""Settings whose two clients together have to be as fast as plain streams."""


def verdict(output: Path) -> Verdict:
    """Judge the medians over all turns of `orion bench threads`; the verdict's text also has the quartiles.

    In one turn, the command measures each setting once.

    Args:
        output: The output folder of a colocation. If the file is missing or broken, the verdict is "not measured".
    """
    try:
        raw = json.loads((output / FILE).read_text())
        figures = raw["figures"] if "figures" in raw else _from_medians(raw["medians"])
        costs = figures["launch_over_plain_ns"]
        slower = {
            name: ratio for name, ratio in figures["products_over_plain"].items() if name.rpartition(", ")[0] in JUDGED
        }
        words = [f"{role} {_with_quartiles(cost, '+.0f')} ns a launch" for role, cost in costs.items()]
        words += [f"{name} {_with_quartiles(ratio, '.3f')} x plain streams" for name, ratio in slower.items()]
        most = max((cost["median"] for cost in costs.values()), default=0.0)
        slowest = max((ratio["median"] for ratio in slower.values()), default=0.0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Verdict(target=TITLE, asked=ASKED, status="not measured", figures="")
    holds = most <= MOST_NS and slowest <= NOISE
    status: Status = "missed" if not holds else "met" if costs and slower else "incomplete"
    return Verdict(target=TITLE, asked=ASKED, status=status, figures="; ".join(words))


def _from_medians(medians: dict[str, dict[str, float]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures of an old file, which has no quartiles."""
    launches, products = medians["launch_ns"], medians["products_ms"]
    plain = launches["plain"]
    slower = {name: took / products[f"plain streams, {name.rpartition(', ')[2]}"] for name, took in products.items()}
    return {
        "launch_over_plain_ns": {role: {"median": took - plain} for role, took in launches.items() if role != "plain"},
        "products_over_plain": {name: {"median": ratio} for name, ratio in slower.items()},
    }


def _with_quartiles(figure: dict[str, float], digits: str) -> str:
    if "low" not in figure:
        return f"{figure['median']:{digits}}"
    return f"{figure['median']:{digits}} ({figure['low']:{digits}} to {figure['high']:{digits}})"
