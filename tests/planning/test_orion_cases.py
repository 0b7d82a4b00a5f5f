"""`planner: orion` on the synthetic RTX 2080 Ti table: how much it schedules, on how many GPUs, and whether it holds.

The case file is sampled, and so are the 19,682 scenarios. The whole of them takes minutes (docs/results/planning.md).
"""

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from orion.planning.serving.cases import Case, Limits, Measured
from orion.simulation.serving import cases_lines, cases_measured
from orion.simulation.serving.cases_runs import Setting, decide_all

DATA = Path(__file__).parents[3] / "shared" / "data" / "glet"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the reference data is not beside this checkout")
TABLE = "latency_synthetic_2080ti_like.csv"
SECONDS = 20.0


@cache
def measured() -> Measured:
    return cases_measured.read(DATA / TABLE, DATA / "facts.json", DATA / "utilisation_2080ti.csv").measured


@cache
def sampled() -> tuple[Case, ...]:
    """Every 60th of the 300 cases, and every 4,000th of the scenarios of nine models at 0, 100 or 200 requests/s."""
    cases = cases_lines.read(DATA / "cases_300.txt", measured().models)
    objectives = {each.model: each for case in cases for each in case if each.rate == 200}
    scenarios = [chosen for chosen in product((0, 100, 200), repeat=len(objectives)) if any(chosen)]
    others = [
        tuple(
            type(objectives[model])(model, rate, objectives[model].objective_ms)
            for model, rate in zip(sorted(objectives), chosen, strict=True)
            if rate
        )
        for chosen in scenarios[700::4000]
    ]
    return (*cases[::60], *others)


@cache
def rows(parts: int | None) -> list[dict[str, Any]]:
    setting = Setting(measured(), Limits(4, parts), SECONDS)
    return [row for chunk in decide_all(setting, ["orion"], sampled(), 1) for row in chunk.rows]


@pytest.mark.parametrize(("parts", "least"), [(None, 0.97), (2, 0.85)])
def test_nearly_all_cases_are_scheduled(parts: int | None, least: float) -> None:
    assert sum(row["schedulable"] for row in rows(parts)) >= least * len(rows(parts))


@pytest.mark.parametrize("parts", [None, 2])
def test_each_plan_holds_every_objective_in_the_simulator(parts: int | None) -> None:
    assert [row["case"] for row in rows(parts) if row["held"] is False] == []


def test_parts_never_exceed_the_gpu_and_add_up_to_the_rates() -> None:
    for case, row in zip(sampled(), rows(2), strict=True):
        by_gpu: dict[int, list[dict[str, Any]]] = {}
        for part in row["parts"]:
            by_gpu.setdefault(part["gpu"], []).append(part)
        for parts in by_gpu.values():
            assert len(parts) <= 2
            assert sum(part["share"] for part in parts) <= 100
            models = [each["model"] for part in parts for each in part["services"]]
            used = sum(measured().models[model].memory_mb for model in models) + 1230 * len(parts)
            assert used <= measured().gpu_memory_mb
        for service in case if row["schedulable"] else ():
            pieces = [each for part in row["parts"] for each in part["services"] if each["model"] == service.model]
            assert sum(piece["throughput"] for piece in pieces) == pytest.approx(service.rate)


def test_parts_take_fewer_gpus_than_whole_gpus_alone() -> None:
    setting = Setting(measured(), Limits(4, 1))
    whole = [row for chunk in decide_all(setting, ["orion"], sampled(), 1) for row in chunk.rows]
    both = [(row["gpus"], more["gpus"]) for row, more in zip(whole, rows(None), strict=True) if row["schedulable"]]
    assert both
    assert all(more <= alone for alone, more in both)
