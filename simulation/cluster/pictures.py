"""Pictures of many runs as SVG: completion times, their mean against the load, and queue and use over time.

A policy has a colour and a mechanism has a line style, so that all pictures of a folder can be compared.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orion.planning.queues.order import POLICIES
from orion.planning.queues.placement import MECHANISMS
from orion.simulation.report import pictures
from orion.simulation.report.page import Picture
from orion.simulation.whole_files import write

TALL_INCHES = (9.0, 7.0)
_LINES = dict(zip(MECHANISMS, (":", "--", "-", "-."), strict=True))

Run = Mapping[str, Any]
""" The summary of a run, with `cdf` and `over_time`. """


def all_of(runs: Sequence[Run]) -> dict[str, Picture]:
    """Return each picture for which there are enough runs, by file name.

    Args:
        runs: the summaries, in the order of the runs.
    """
    found: dict[str, Picture] = {}
    by_rate: dict[float | None, list[Run]] = {}
    for run in runs:
        if run["cdf"]:
            by_rate.setdefault(run["rate"], []).append(run)
    if len(by_rate) > 1:
        found["mean-against-load.svg"] = _mean_against_load(by_rate)
    for rate, those in by_rate.items():
        name = "" if rate is None or len(by_rate) == 1 else f"-{rate:g}"
        at = "" if rate is None else f", {rate:g} jobs an hour"
        found[f"completion-times{name}.svg"] = _completion_times(those, at)
        found[f"over-time{name}.svg"] = _over_time(those, at)
    return found


def draw(drawn: Mapping[str, Picture], output: Path) -> list[Path]:
    """Write pictures into a folder, and return the files.

    Raises:
        Conflict: a file cannot be written.
    """
    for name, picture in drawn.items():
        write(output / name, [picture.svg])
    return [output / name for name in drawn]


def _style(run: Run) -> dict[str, str]:
    policy, _, mechanism = run["scheduler"].partition("+")
    return {"color": f"C{list(POLICIES).index(policy)}", "linestyle": _LINES[mechanism]}


def _completion_times(runs: Sequence[Run], at: str) -> Picture:
    def plot(axes: Any) -> None:
        for run in runs:
            label = run["scheduler"] if run["seed"] is None else f"{run['scheduler']}, seed {run['seed']}"
            points = run["cdf"]
            parts = [index / (len(points) - 1) for index in range(len(points))]
            axes.plot(points, parts, label=label, **_style(run))
        axes.set(xlabel="time from arrival to end (hours)", ylabel="part of the jobs", ylim=(0, 1))
        if all(run["cdf"][0] > 0 for run in runs):
            axes.set_xscale("log")
        _finish(axes)

    caption = "The part of the jobs that ended within a time after their arrival."
    return Picture(f"Completion times{at}", pictures.svg(plot), caption)


def _mean_against_load(by_rate: Mapping[float | None, Sequence[Run]]) -> Picture:
    means: dict[str, dict[float, list[float]]] = {}
    for rate, runs in by_rate.items():
        for run in runs:
            means.setdefault(run["scheduler"], {}).setdefault(rate or 0.0, []).append(run["jct_h"]["mean"])

    def plot(axes: Any) -> None:
        for scheduler, points in means.items():
            rates = sorted(points)
            mean = [sum(points[rate]) / len(points[rate]) for rate in rates]
            axes.plot(rates, mean, marker="o", label=scheduler, **_style({"scheduler": scheduler}))
        axes.set(xlabel="jobs an hour", ylabel="mean time from arrival to end (hours)")
        axes.set_ylim(bottom=0)
        _finish(axes)

    caption = "The mean time from arrival to end at each rate of arrivals; several seeds are averaged."
    return Picture("Completion time against load", pictures.svg(plot), caption)


def _over_time(runs: Sequence[Run], at: str) -> Picture:
    shown = [run for run in runs if run["seed"] == runs[0]["seed"]]

    def plot(axes: Any) -> None:
        figure = axes.figure
        axes.remove()
        panels = figure.subplots(3, 1, sharex=True)
        for panel, name, label in zip(
            panels, ("queued", "running", "gpus"), ("jobs that wait", "jobs that run", "GPUs in use"), strict=True
        ):
            for run in shown:
                series = run["over_time"]
                panel.plot(series["time_h"], series[name], label=run["scheduler"], linewidth=1, **_style(run))
            panel.set_ylabel(label)
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.3)
        panels[-1].set_xlabel("hours")
        _legend(panels[0])

    seed = "" if runs[0]["seed"] is None else f" (seed {runs[0]['seed']})"
    caption = f"Jobs that wait, jobs that run and GPUs in use{seed}; a point is the mean of several rounds."
    return Picture(f"Queue and use over time{at}", pictures.svg(plot, TALL_INCHES), caption)


def _finish(axes: Any) -> None:
    axes.grid(alpha=0.3)
    _legend(axes)


def _legend(axes: Any) -> None:
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize="small", frameon=False)
