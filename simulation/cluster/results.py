"""The results of one run: its rows of jobs.csv and rounds.csv, and its summary."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .loop import Outcome
from .rules import Rules

JOBS_HEADER = "scheduler,rate,seed,job_id,model,gpus,arrival_s,start_s,finish_s,jct_s,fair_s,restarts\n"
ROUNDS_HEADER = "scheduler,rate,seed,time_s,queued,running,gpus,cpus,memory_gb,storage_mbps,speed\n"
CDF_POINTS = 201
TIME_POINTS = 400


def number(value: float | None) -> str:
    """Return a number in the format of the files: at most six decimals; an empty text for None."""
    if value is None or math.isnan(value):
        return ""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def job_lines(prefix: str, outcome: Outcome, rules: Rules) -> Iterator[str]:
    """Yield a line for each job that counts (`Rules.window`), by arrival.

    Args:
        prefix: the first columns of each line: scheduler, rate and seed.
        outcome: the result of the run.
        rules: the settings of the run.
    """
    ledger = outcome.ledger
    columns = zip(
        ledger.jobs, ledger.start_s.tolist(), ledger.finish_s.tolist(), ledger.fair_s.tolist(),
        ledger.restarts.tolist(), strict=True,
    )  # fmt: skip
    for job, start_s, finish_s, fair_s, restarts in columns:
        if rules.counts(job.number):
            times = (job.arrival_s, start_s, finish_s, finish_s - job.arrival_s, fair_s)
            yield f"{prefix},{job.number},{job.model},{job.gpus},{','.join(map(number, times))},{restarts}\n"


def round_lines(prefix: str, outcome: Outcome) -> Iterator[str]:
    """Yield a line for each round."""
    for each in outcome.rounds:
        yield f"{prefix},{','.join(map(number, each))}\n"


def summary(outcome: Outcome, rules: Rules) -> dict[str, Any]:
    """Return the figures of one run; its times are in hours."""
    ledger = outcome.ledger
    counted = np.array([rules.counts(job.number) for job in ledger.jobs], dtype=bool)
    jct_h = (ledger.finish_s - ledger.arrival_s)[counted] / 3600
    jct_h = jct_h[~np.isnan(jct_h)]
    found: dict[str, Any] = {
        "jobs": int(counted.sum()),
        "finished": len(jct_h),
        "jct_h": {"mean": None, "p50": None, "p99": None, "max": None},
        "makespan_h": None,
        "rounds": len(outcome.rounds),
        "restarts": int(ledger.restarts[counted].sum()),
    }
    if len(jct_h):
        p50, p99 = np.percentile(jct_h, (50, 99)).tolist()
        found["jct_h"] = {"mean": float(jct_h.mean()), "p50": p50, "p99": p99, "max": float(jct_h.max())}
        span_s = np.nanmax(ledger.finish_s[counted]) - ledger.arrival_s[counted].min()
        found["makespan_h"] = float(span_s) / 3600
        found["worst_over_fair"] = _worst_over_fair(outcome, counted, rules)
    found["bound"] = None
    if outcome.bounds:
        found["bound"] = {
            "speed": float(np.mean(outcome.bounds)),
            "reached": float(np.mean([each.speed for each in outcome.rounds])),
        }
    return found


def _worst_over_fair(outcome: Outcome, counted: np.ndarray, rules: Rules) -> float:
    """Return the largest ratio of a job's completion time to the time that the job takes alone at its fair share.

    A time at the fair share that is shorter than one round counts as one round.
    """
    ledger = outcome.ledger
    ratio = (ledger.finish_s - ledger.arrival_s) / np.maximum(ledger.fair_s, rules.round_s)
    return float(np.nanmax(ratio[counted]))


def cdf(outcome: Outcome, rules: Rules) -> list[float]:
    """Return quantiles of the completion times in hours, from 0 to 1 in equal steps."""
    ledger = outcome.ledger
    counted = np.array([rules.counts(job.number) for job in ledger.jobs], dtype=bool)
    jct_h = (ledger.finish_s - ledger.arrival_s)[counted] / 3600
    jct_h = jct_h[~np.isnan(jct_h)]
    return np.quantile(jct_h, np.linspace(0, 1, CDF_POINTS)).tolist() if len(jct_h) else []


def over_time(outcome: Outcome) -> dict[str, list[float]]:
    """Return how many jobs waited and ran and how many GPUs were in use: means over equal numbers of rounds."""
    rounds = np.array([(each.time_s / 3600, each.queued, each.running, each.gpus) for each in outcome.rounds])
    begins = np.unique(np.linspace(0, len(rounds), TIME_POINTS, endpoint=False).astype(int))
    counts = np.diff([*begins, len(rounds)])
    means = np.add.reduceat(rounds, begins) / counts[:, np.newaxis] if len(rounds) else rounds.reshape(0, 4)
    names = ("time_h", "queued", "running", "gpus")
    return {name: np.round(column, 3).tolist() for name, column in zip(names, means.T, strict=True)}
