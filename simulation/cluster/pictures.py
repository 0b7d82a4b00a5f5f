"""Pictures of many runs as SVG: completion times of each scheduler, and their mean against the load."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orion.simulation.whole_files import write

SIZE_INCHES = (8, 5)


def draw(runs: Sequence[Mapping[str, Any]], output: Path) -> list[Path]:
    """Write each picture for which there are enough runs; return the files.

    Args:
        runs: the summary of each run, with `cdf`, in the order of the runs.
        output: the folder for the pictures.

    Raises:
        Conflict: a file cannot be written.
    """
    drawn = []
    by_rate: dict[float | None, list[Mapping[str, Any]]] = {}
    for run in runs:
        if run["cdf"]:
            by_rate.setdefault(run["rate"], []).append(run)
    for rate, those in by_rate.items():
        name = "completion-times.svg" if rate is None or len(by_rate) == 1 else f"completion-times-{rate:g}.svg"
        drawn.append(_completion_times(those, output / name))
    if len(by_rate) > 1:
        drawn.append(_mean_against_load(by_rate, output / "mean-against-load.svg"))
    return drawn


def _completion_times(runs: Sequence[Mapping[str, Any]], path: Path) -> Path:
    def plot(axes: Any) -> None:
        for run in runs:
            label = run["scheduler"] if run["seed"] is None else f"{run['scheduler']}, seed {run['seed']}"
            points = run["cdf"]
            axes.plot(points, [at / (len(points) - 1) for at in range(len(points))], label=label)
        axes.set(xlabel="time from arrival to end (hours)", ylabel="part of the jobs", ylim=(0, 1))
        if all(run["cdf"][0] > 0 for run in runs):
            axes.set_xscale("log")

    return _save(plot, path)


def _mean_against_load(by_rate: Mapping[float | None, Sequence[Mapping[str, Any]]], path: Path) -> Path:
    means: dict[str, dict[float, list[float]]] = {}
    for rate, runs in by_rate.items():
        for run in runs:
            means.setdefault(run["scheduler"], {}).setdefault(rate or 0.0, []).append(run["jct_h"]["mean"])

    def plot(axes: Any) -> None:
        for scheduler, points in means.items():
            rates = sorted(points)
            axes.plot(rates, [sum(points[rate]) / len(points[rate]) for rate in rates], marker="o", label=scheduler)
        axes.set(xlabel="jobs an hour", ylabel="mean time from arrival to end (hours)")
        axes.set_ylim(bottom=0)

    return _save(plot, path)


def _save(plot: Any, path: Path) -> Path:
    """Draw a picture without a display, and write it without a date, so that the same runs give the same bytes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": "orion", "svg.fonttype": "none"}):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        plot(axes)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        drawing = io.StringIO()
        figure.savefig(drawing, format="svg", metadata={"Date": None})
    write(path, [drawing.getvalue()])
    return path
