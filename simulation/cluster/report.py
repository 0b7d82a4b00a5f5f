"""The HTML page of `orion simulate cluster`: the answer in one sentence, pictures, each run, what is assumed."""

from collections.abc import Mapping, Sequence
from typing import Any

from orion.simulation.report import page
from orion.simulation.report.page import Picture, Table

from .rules import Rules

COLUMNS = (
    "scheduler", "jobs an hour", "seed", "jobs", "refused", "mean (h)", "p50 (h)", "p99 (h)", "max (h)", "makespan (h)",
    "restarts",
)  # fmt: skip


def html(report: Mapping[str, Any], drawn: Sequence[Picture], rules: Rules) -> str:
    """Return the page.

    Args:
        report: what `--json` prints.
        drawn: the pictures.
        rules: the settings of the runs.
    """
    shape = report["cluster"]
    shared = f", {shape['shared_gpus']} of them shared with high-priority services" if shape["shared_gpus"] else ""
    title = f"Training jobs on {shape['gpus']} GPUs{shared}"
    tables = [Table("Runs", COLUMNS, [cells(run) for run in report["runs"]])]
    if report["skipped"]:
        rows = [(str(each["line"]), each["reason"]) for each in report["skipped"]]
        tables.append(Table("Lines of the trace that were left out", ("line", "reason"), rows))
    return page.report(title, answer(report["runs"]), drawn, tables, [*_assumptions(rules), *report["notes"]])


def answer(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the result of the runs in one sentence: the best and the worst scheduler at the highest load."""
    ended = [run for run in runs if run["jct_h"]["mean"] is not None]
    if not ended:
        return "No job has ended."
    top = max((run["rate"] or 0.0 for run in ended), default=0.0)
    at = f"At {top:g} jobs an hour, a" if top else "A"
    means: dict[str, list[float]] = {}
    for run in ended:
        if (run["rate"] or 0.0) == top:
            means.setdefault(run["scheduler"], []).append(run["jct_h"]["mean"])
    mean = {scheduler: sum(those) / len(those) for scheduler, those in means.items()}
    best, worst = min(mean, key=mean.__getitem__), max(mean, key=mean.__getitem__)
    text = f"{at} job takes {mean[best]:.1f} hours from arrival to end with {best}"
    return f"{text} and {mean[worst]:.1f} hours with {worst}." if mean[worst] > mean[best] else f"{text}."


def cells(run: Mapping[str, Any]) -> list[str]:
    """Return a run as text, one cell for each of `COLUMNS`."""
    hours = [*run["jct_h"].values(), run["makespan_h"]]
    return [
        run["scheduler"], "" if run["rate"] is None else f"{run['rate']:g}",
        "" if run["seed"] is None else str(run["seed"]), str(run["jobs"]), str(run["refused"]),
        *("" if value is None else f"{value:.2f}" for value in hours), str(run["restarts"]),
    ]  # fmt: skip


def _assumptions(rules: Rules) -> list[str]:
    found = [f"The scheduler decides every {rules.round_s:g} s."]
    if rules.is_compatible:
        found.append("Jobs are scheduled as in Synergy's published simulator: moves are free, jobs end with a round.")
    else:
        found.append(f"A job that moves, or goes on after a pause, loses {rules.restart_cost_s:g} s.")
        found.append("A job ends when its work ends; other jobs get its GPUs from the next round on.")
        found.append(
            "Beside a high-priority service, a job's speed is (1 - busy - busy periods a second x switch) / slowdown. "
            "A job on several GPUs runs at the speed of the slowest one."
        )
    if rules.window is not None:
        found.append(f"Only the jobs {rules.window[0]} to {rules.window[1]} count.")
    return [
        *found,
        "The profiles give the speed of a model for each amount of CPUs and memory.",
        "The network is not modelled. Servers do not fail.",
    ]
