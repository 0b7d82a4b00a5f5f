"""glet and its baselines against runs of the authors' scheduler: decisions, GPUs, shares, services and batches."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.planning.serving.cases import Decide, Limits, Measured, Service
from orion.planning.serving.planners import PLANNERS
from orion.planning.serving.plans import Plan
from orion.simulation.serving import cases_lines, cases_measured

DATA = Path(__file__).parents[3] / "shared" / "data" / "glet"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the reference data is not beside this checkout")

PART = re.compile(r"\[g(\d+) p(\d+) d(\d+) m(\d+) b(\d+) dc([\d.]+) occ[\d.]+ thr([\d.]+)\]")
RUNS = [
    ("out-gpulet-noint-300.txt", "glet", False),
    ("out-timesharing_only-300.txt", "temporal", False),
    ("sweep-gpulet-int-scen2.txt", "glet", True),
    ("sweep-greedy_part-scen2.txt", "greedy", False),
]


def measured(*, has_interference: bool) -> Measured:
    utilisation = DATA / "utilisation_2080ti.csv" if has_interference else None
    found = cases_measured.read(DATA / "latency_synthetic_2080ti_like.csv", DATA / "facts.json", utilisation)
    assert not found.notes
    return found.measured


def decide(planner: str, *, has_interference: bool) -> Decide:
    return PLANNERS[planner](measured(has_interference=has_interference), Limits(4))


def runs(name: str) -> Iterator[tuple[tuple[Service, ...], bool, list[tuple[float, ...]]]]:
    for line in (DATA / name).read_text().splitlines():
        _, services, is_schedulable, *rest = line.split("|")
        case = tuple(Service(int(m), float(r), float(o)) for m, r, o in (s.split(":") for s in services.split()))
        yield case, is_schedulable == "1", [tuple(map(float, found)) for found in PART.findall("".join(rest))]


def placed(plan: Plan) -> list[tuple[float, ...]]:
    return [
        (part.gpu, part.share, part.copy, int(each.service), each.batch, each.max_delay_ms, each.throughput)
        for part in plan.parts
        for each in part.services
    ]


@pytest.mark.parametrize(("name", "planner", "has_interference"), RUNS, ids=[name for name, _, _ in RUNS])
def test_each_plan_is_that_of_the_authors_scheduler(name: str, planner: str, has_interference: bool) -> None:
    planned = decide(planner, has_interference=has_interference)
    for case, is_schedulable, parts in runs(name):
        plan = planned(case)
        assert plan.is_schedulable == is_schedulable, case
        assert [part[:5] for part in placed(plan)] == [part[:5] for part in parts], case
        for mine, theirs in zip(placed(plan), parts, strict=True):
            assert mine[5:] == pytest.approx(theirs[5:], abs=0.0051), case


def test_with_interference_glet_puts_221_of_the_300_cases_on_878_gpus() -> None:
    found = measured(has_interference=True)
    planned = PLANNERS["glet"](found, Limits(4))
    plans = [planned(case) for case in cases_lines.read(DATA / "cases_300.txt", found.models)]
    assert sum(plan.is_schedulable for plan in plans) == 221
    assert sum(plan.gpus for plan in plans) == 878


def test_full_search_takes_the_first_division_that_holds() -> None:
    found = measured(has_interference=True)
    planned = PLANNERS["full-search"](found, Limits(4))
    cases = cases_lines.read(DATA / "cases_300.txt", found.models)[:40]
    assert [planned(case).is_schedulable for case in cases].count(True) == 36
    first = planned(cases[0])
    assert [(part.gpu, part.share, part.copy) for part in first.parts] == [(1, 50, 1), (2, 50, 1), (3, 50, 1)]


@pytest.mark.parametrize("planner", ["glet", "greedy", "temporal"])
def test_a_further_gpu_never_loses_a_case(planner: str) -> None:
    found = measured(has_interference=True)
    cases = cases_lines.read(DATA / "cases_300.txt", found.models)[:60]
    few, many = (PLANNERS[planner](found, Limits(gpus)) for gpus in (3, 4))
    assert all(many(case).is_schedulable for case in cases if few(case).is_schedulable)
