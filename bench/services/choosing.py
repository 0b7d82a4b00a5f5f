"""What planners choose for the measured pairs, from the profile alone: the way at each load, and the highest load.

A planner gets one H200, each service's times without MPS and on the measured parts, its objective, its rate, and how
its server forms batches. It gets no run of a pair and no loop side by side.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orion.bench.services import comparing, predicting
from orion.bench.services.measured import Measured
from orion.bench.services.pairs import ALLOWED_MISSES, rate_of
from orion.bench.services.scenario import shares_of
from orion.errors import NotFound
from orion.planning.serving.plans import Plan

BEST_WITHIN = 0.05
STEP = 0.05
MOST_LOAD = 2.0
"""The highest load of a planner is looked for in steps up to here."""


@dataclass(frozen=True)
class Choice:
    """The way that `planner: orion` chooses for one pair and load."""

    pair: tuple[str, str]
    load: float
    way: str
    scores: dict[str, float]
    """By way: the worst service's measured p99 over its objective."""

    @property
    def best(self) -> str:
        """Return the measured best way."""
        return min(self.scores, key=lambda way: self.scores[way])

    @property
    def is_best(self) -> bool:
        """Return whether the way is the measured best, or near it."""
        return self.scores.get(self.way, float("inf")) <= (1 + BEST_WITHIN) * self.scores[self.best]


def choices(measured: Measured) -> list[Choice]:
    """Return what `planner: orion` chooses for each measured pair and load."""
    rates = {
        (*run["pair"], run["load"]): [each["rate"] for each in run["services"]] for _, run in measured.runs("pairs")
    }
    found = []
    for (first, second, load), scores in comparing.scores(measured).items():
        plan = planned(measured, (first, second), rates[first, second, load], "orion")
        found.append(Choice((first, second), load, way_of(plan, (first, second)), scores))
    return found


def way_of(plan: Plan, pair: Sequence[str]) -> str:
    """Return the name of a plan of one GPU for a pair: `edf`, or `part-A-B`."""
    shares = {each.service: part.share for part in plan.parts for each in part.services}
    return "edf" if len(plan.parts) == 1 else f"part-{shares[pair[0]]:g}-{shares[pair[1]]:g}"


def highest(measured: Measured) -> dict[tuple[str, str], dict[str, float]]:
    """Return for each pair the highest measured load of each way with at most 1 % misses, beside planners'; 0: none."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for part in ("pairs", "climb"):
        for _, run in measured.runs(part):
            pair = (run["pair"][0], run["pair"][1])
            if pair in measured.wanted.climb.pairs and run["way"] in measured.wanted.pairs.ways:
                holds = all(each["misses"] <= ALLOWED_MISSES for each in run["services"])
                ways = found.setdefault(pair, {})
                ways[run["way"]] = max(ways.get(run["way"], 0.0), run["load"] if holds else 0.0)
    times = json.loads((measured.folder / "batch_times.json").read_text())
    for pair, ways in found.items():
        for planner in ("temporal", "glet", "orion"):
            ways[f"planner {planner}"] = _highest_planned(measured, pair, planner, times)
    return found


def _highest_planned(measured: Measured, pair: tuple[str, str], planner: str, times: dict[str, float]) -> float:
    """Return the highest load for which a planner finds a plan on one GPU; not every lower one needs to have one."""
    best = 0.0
    for step in range(1, round(MOST_LOAD / STEP) + 1):
        load = round(step * STEP, 2)
        rates = [rate_of(measured.wanted, name, load, times[name]) for name in pair]
        try:
            planned(measured, pair, rates, planner)
        except NotFound:
            continue
        best = load
    return best


def planned(measured: Measured, pair: Sequence[str], rates: Sequence[float], planner: str) -> Plan:
    """Return a planner's plan for a pair on one GPU; `NotFound` if it finds none."""
    from orion.simulation.serving import planned as plans
    from orion.simulation.serving import reading

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(json.dumps(planner_scenario(measured, pair, rates, as_measured=planner == "orion")))
        return plans.plan(reading.read(path), planner).plan


def planner_scenario(
    measured: Measured, pair: Sequence[str], rates: Sequence[float], as_measured: bool = True
) -> dict[str, Any]:
    """Return the scenario of a pair without a plan.

    Args:
        measured: the profile.
        pair: the services.
        rates: requests/s of each.
        as_measured: with the shares and the batches of the measured runs only; False: all of the profile.
    """
    shares = sorted({share for way in measured.wanted.pairs.all_ways for share in shares_of(way) or ()})
    if not as_measured:
        shares = sorted(share for share in measured.wanted.profile.shares if share < 100)
    services = []
    for name, rate in zip(pair, rates, strict=True):
        wanted = measured.wanted.services[name]
        points = [point for share in (None, *shares) for point in predicting.points(measured, name, share)]
        services.append({
            "name": name, "objective": {"latency": f"{wanted.objective_ms:g}ms", "quantile": 0.99}, "rate": rate,
            "latency": [point for point in points if point["batch"] <= wanted.batch or not as_measured],
            "maxDelay": f"{wanted.max_delay_ms:g}ms",
        })  # fmt: skip
    return {"gpus": [{"name": "g0", "type": "H200", "memory": 141}], "seconds": 10, "services": services}
