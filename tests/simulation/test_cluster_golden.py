"""The compatible mode against runs of Synergy's simulator, and the default mode against what it promises."""

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from orion.planning.queues.resources import Server
from orion.simulation.cluster import loop, profiles
from orion.simulation.cluster.jobs import Job
from orion.simulation.cluster.loop import Outcome
from orion.simulation.cluster.rules import Rules
from orion.simulation.cluster.schedulers import Scheduler, known

DATA = Path(__file__).parents[3] / "shared" / "data" / "synergy"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the reference data is not beside this checkout")

GOLDEN = sorted(path.stem for path in (DATA / "golden").glob("*.csv"))
TRACES = {
    "static100": ("static_100job_6_3_1100.0.trace", 4),
    "dynamic100": ("dynamic_srtf.trace", 4),
    "synthsingle": ("synth_single_7jph_seed42.1000.trace", 16),
    "synthmulti": ("synth_multi_3.5jph_seed42.1000.trace", 16),
}
SERVER = Server(8, 24.0, 500.0, 500.0)


@cache
def run(trace: str, policy: str, mechanism: str, *, is_compatible: bool, cost_s: float = 0.0) -> Outcome:
    file, count = TRACES[trace]
    with (DATA / file).open() as lines:
        jobs = [Job(int(number), model, float(at), int(i), int(g)) for number, model, at, i, g in csv.reader(lines)]
    rules = Rules(is_static=trace.startswith("static"), is_compatible=is_compatible, restart_cost_s=cost_s)
    servers = (SERVER,) * count
    found = profiles.read(DATA / "profiles_v100.json").by_model
    return loop.run(jobs, found, lambda now_s: servers, Scheduler(policy, mechanism), rules)


def jct_s(outcome: Outcome) -> dict[int, float]:
    ledger = outcome.ledger
    times = (ledger.finish_s - ledger.arrival_s).tolist()
    return {job.number: time for job, time in zip(ledger.jobs, times, strict=True)}


def mean_s(outcome: Outcome) -> float:
    return float(np.mean(list(jct_s(outcome).values())))


@pytest.mark.parametrize("name", [name for name in GOLDEN if not name.endswith("_opt")])
def test_every_job_ends_when_it_does_in_synergys_simulator(name: str) -> None:
    found = jct_s(run(*name.split("_"), is_compatible=True))
    with (DATA / "golden" / f"{name}.csv").open() as lines:
        given = {int(row["job_id"]): float(row["jct_s"]) for row in csv.DictReader(lines)}
    assert found == pytest.approx(given, abs=0.01)


@pytest.mark.parametrize("name", [name for name in GOLDEN if name.endswith("_opt")])
def test_opt_is_at_least_as_good_as_synergys_and_as_tune(name: str) -> None:
    trace, policy, _ = name.split("_")
    with (DATA / "golden" / f"{name}.csv").open() as lines:
        given = float(np.mean([float(row["jct_s"]) for row in csv.DictReader(lines)]))
    mean = mean_s(run(trace, policy, "opt", is_compatible=True))
    assert mean <= given * 1.005
    assert mean <= mean_s(run(trace, policy, "tune", is_compatible=True))


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("mechanism", ["fair", "tune"])
def test_finish_time_fairness_treats_no_job_much_worse_than_alone(trace: str, mechanism: str) -> None:
    outcome = run(trace, "FTF", mechanism, is_compatible=False)
    ledger = outcome.ledger
    assert ((ledger.finish_s - ledger.arrival_s) / np.maximum(300, ledger.fair_s)).max() <= 2.1


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("policy", ["FIFO", "SRTF", "LAS"])
def test_tune_is_no_slower_than_fair(trace: str, policy: str) -> None:
    fair, tune = (run(trace, policy, mechanism, is_compatible=False) for mechanism in ("fair", "tune"))
    assert mean_s(tune) <= mean_s(fair)


@pytest.mark.parametrize("scheduler", known(is_compatible=False), ids=str)
def test_no_round_gives_out_more_than_there_is(scheduler: Scheduler) -> None:
    outcome = run("dynamic100", scheduler.policy, scheduler.mechanism, is_compatible=False, cost_s=30.0)
    given = np.array([each[3:7] for each in outcome.rounds])
    assert (given <= np.array([32, 96, 2000, 2000]) * (1 + 1e-9)).all()
    assert not np.isnan(outcome.ledger.finish_s).any()
