"""Whether clients as threads cost what was promised, from the raw data that `orion bench threads` left in a folder."""

import json
from pathlib import Path

from orion.bench.colocation.summary import Status, Verdict

FILE = "threads_cost.json"
TITLE = "cost of threads"
ASKED = "<= 1 us an operation over plain streams, and 100 GEMMs 2048 of two clients no slower"
MOST_NS = 1000.0
NOISE = 1.02
JUDGED = ("two hp", "be and hp, gate", "be and hp, orion 1")
"""Settings whose clients have to be as fast together as plain streams."""


def verdict(output: Path) -> Verdict:
    """Judge what was measured beside a colocation.

    Args:
        output: The folder; without the file, or with a broken one, nothing was measured.
    """
    try:
        medians = json.loads((output / FILE).read_text())["medians"]
        launches, products = medians["launch_ns"], medians["products_ms"]
        plain = launches["plain"]
        costs = {role: took - plain for role, took in launches.items() if role != "plain"}
        slower = {
            name: took / products[f"plain streams, {name.rpartition(', ')[2]}"]
            for name, took in products.items()
            if name.rpartition(", ")[0] in JUDGED
        }
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return Verdict(target=TITLE, asked=ASKED, status="not measured", figures="")
    words = [f"{role} {cost:+.0f} ns a launch" for role, cost in costs.items()]
    words += [f"{name} {ratio:.3f} x plain streams" for name, ratio in slower.items()]
    holds = max(costs.values(), default=0.0) <= MOST_NS and max(slower.values(), default=0.0) <= NOISE
    status: Status = "missed" if not holds else "met" if costs and slower else "incomplete"
    return Verdict(target=TITLE, asked=ASKED, status=status, figures="; ".join(words))
