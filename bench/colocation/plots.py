"""Pictures of one pair: latency distributions, hp's p99 against be's throughput, and the best hp + be at each p99.

The colours are those of Okabe and Ito, which people with colour blindness can distinguish. A family of systems shares a
colour and a marker; its members differ by line style and by the label beside the point. This module needs matplotlib.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from orion.bench.colocation.ceiling import front
from orion.bench.colocation.plot_labels import Label, place
from orion.bench.colocation.run_files import SystemSpec
from orion.bench.colocation.summary import CeilingCurve, Figure, PairFigures, SystemFigures
from orion.bench.estimates import Samples
from orion.bench.samples import percentile

INK, PALE = "#22262b", "#9aa1a9"
FAMILIES = {
    "alone": ("#000000", "o"),
    "time-slicing": ("#E69F00", "s"),
    "MPS": ("#D55E00", "^"),
    "plain streams": ("#F0E442", "<"),
    "Orion, time-slicing": ("#0072B2", "o"),
    "Orion, MPS": ("#009E73", "D"),
    "Orion, threads": ("#56B4E9", "v"),
    "re-implemented": ("#CC79A7", "P"),
    "foreign": ("#6e6e6e", "X"),
}
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
OWN_POLICIES = ("gate", "orion", None)
SIZE = (9.6, 5.6)  # inches; 1056 x 616 pixels
DPI = 110
STRETCH = 0.05
WIDEST = 6.0  # p99 divided by alone; the front does not show points with a higher ratio


def draw(pair: PairFigures, latencies: Mapping[str, Samples], output: Path) -> list[str]:
    """Draw a pair's pictures as PNG.

    Args:
        pair: The pair's figures.
        latencies: Milliseconds by system, including `alone`.
        output: Folder for the files.

    Returns:
        Names of the files.
    """
    name = f"{pair.hp.id}--{pair.be_id}.png"
    drawn = [f"latency--{name}"]
    _save(_distribution(pair, latencies), output / drawn[-1])
    if any(system.be for system in pair.systems):
        drawn.append(f"tradeoff--{name}")
        _save(_tradeoff(pair), output / drawn[-1])
    overlaps = any(system.total and system.spec.overlap_mode for system in pair.systems)
    if pair.rate and overlaps and any(p99.median <= _widest(pair) for _, p99, _ in _sums(pair)):
        drawn.append(f"front--{name}")
        _save(_front(pair), output / drawn[-1])
    return drawn


def family(spec: SystemSpec) -> str:
    """Return a system's family, which determines colour and marker."""
    if spec.kind == "orion":
        modes = {"mps": "Orion, MPS", "threads": "Orion, threads"}
        own = spec.policy in OWN_POLICIES
        return modes.get(spec.mode or "", "Orion, time-slicing") if own else "re-implemented"
    return {"alone": "alone", "timeslice": "time-slicing", "mps": "MPS", "plain-streams": "plain streams"}.get(
        spec.kind, "foreign"
    )


def _distribution(pair: PairFigures, latencies: Mapping[str, Samples]) -> Picture:
    """Draw distributions: the vertical axis shows the share of slower requests, in log scale to show the tail."""
    picture, axes = _canvas(pair, "hp latency" if pair.rate else "hp iteration time")
    p99 = {name: percentile(times, 99) for name, times in latencies.items()}
    styles = {"alone": ("#000000", "-"), **dict(_styles(pair.systems))}
    for name in sorted(latencies, key=lambda one: -p99[one]):
        times = np.sort(latencies[name])
        above = len(times) / (len(times) - np.arange(len(times)) - 0.5)
        colour, dashes = styles[name]
        label = f"{name}: p99 {_short(p99[name])} ms"
        width, alpha, order = (5.0, 0.3, 1) if name == "alone" else (1.8, 1.0, 2)
        axes.plot(times, above, color=colour, linestyle=dashes, linewidth=width, alpha=alpha, label=label, zorder=order)
    axes.set_xscale("log")
    axes.set_yscale("log")
    levels = [level for level in (1, 2, 10, 100, 1000) if level <= 2 * max(len(one) for one in latencies.values())]
    axes.yaxis.set_major_locator(FixedLocator(levels))
    axes.yaxis.set_minor_locator(NullLocator())
    names = {1: "p0", 2: "p50", 10: "p90", 100: "p99", 1000: "p99.9"}
    axes.yaxis.set_major_formatter(FuncFormatter(lambda level, _: names.get(round(level), "")))
    axes.set_ylim(1, None)
    low, high = axes.get_xlim()
    ticks = [digit * 10.0**power for power in range(-3, 7) for digit in (1, 2, 5)]
    _ticks(axes.xaxis, [tick for tick in ticks if low <= tick <= high])
    axes.set_xlabel("ms from the scheduled arrival" if pair.rate else "ms an iteration")
    axes.set_ylabel("share of requests that took no longer")
    _legend_outside(axes, "all rounds together")
    return picture


def _tradeoff(pair: PairFigures) -> Picture:
    picture, axes = _canvas(pair, "hp's latency against be's throughput")
    shown = [(system, system.be, system.iteration or system.latency["p99"]) for system in pair.systems if system.be]
    lines = [[(0.0, 1.0), (2.0, 1.0)]]
    axes.axhline(1, color=INK, linewidth=0.8)
    if pair.be_bound:
        bound = float(np.median(pair.be_bound))
        lines.append([(bound, 0.5), (bound, 1e4)])
        axes.axvline(bound, color=PALE, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            "be's bound", (bound, 1), xycoords=("data", "axes fraction"), xytext=(4, -4),
            textcoords="offset points", rotation=90, va="top", fontsize=9, color=PALE,
        )  # fmt: skip
    labels = [_point(axes, system, x, y) for system, x, y in shown]
    axes.set_xlim(-0.02, 1.12 * max([1.0, *(x.high for _, x, _ in shown)]))
    _stretched_ratios(axes, [y for *_, y in shown])
    axes.set_xlabel("be throughput / alone")
    axes.set_ylabel("hp p99 / alone" if pair.rate else "hp iteration time / alone")
    place(axes, labels, 10, [*_crosses(shown), *lines])
    return picture


def _front(pair: PairFigures) -> Picture:
    picture, axes = _canvas(pair, "throughput of hp + be by hp's tail latency")
    measured, widest = _sums(pair), _widest(pair)
    shown = [one for one in measured if one[1].median <= widest]
    axes.set_xscale("log")
    labels = [_point(axes, system, x, y) for system, x, y in shown]
    lines = [_measured_front(axes, shown, widest), *(_ceiling(axes, curve, widest) for curve in pair.ceilings)]
    _front_limits(axes, [x for _, x, _ in shown], widest)
    sums = np.concatenate([[1.0], *(line[:, 1] for line in lines), [y.median for *_, y in shown]])
    axes.set_ylim(sums.min() - 0.06, sums.max() + 0.06)
    axes.axhline(1, color=INK, linewidth=0.8, zorder=0)
    axes.set_xlabel("hp p99 / alone")
    axes.set_ylabel("hp / alone + be / alone (throughput)")
    beyond = [f"{system.system}: {y.median:.2f} at {x.median:.3g}" for system, x, y in measured if x.median > widest]
    title = "\n".join(["further right:", *beyond]) if beyond else None
    _legend_outside(axes, title)
    place(axes, labels, 10, [*_crosses(shown), *lines, [(axes.get_xlim()[0], 1), (axes.get_xlim()[1], 1)]])
    return picture


def _sums(pair: PairFigures) -> list[tuple[SystemFigures, Figure, Figure]]:
    return [(system, system.latency["p99"], system.total) for system in pair.systems if system.total]


def _widest(pair: PairFigures) -> float:
    """Return the highest p99 / alone that the front shows; slower systems are only listed in the legend's title."""
    orion = [one.latency["p99"].median for one in pair.systems if one.spec.kind == "orion" and one.spec.overlap_mode]
    ends = [curve.hp_p99[-1] for curve in pair.ceilings]
    return 1.15 * max([2.2, *(value for value in (*orion, *ends) if value < WIDEST)])


def _measured_front(axes: Axes, shown: Sequence[tuple[SystemFigures, Figure, Figure]], widest: float) -> Samples:
    p99, total = front(np.array([x.median for _, x, _ in shown]), np.array([y.median for *_, y in shown]))
    p99, total = np.append(p99, widest), np.append(total, total[-1])
    axes.step(p99, total, where="post", color=PALE, linewidth=1.2, zorder=1, label="best measured")
    return np.column_stack((np.repeat(p99, 2)[1:], np.repeat(total, 2)[:-1]))


def _ceiling(axes: Axes, curve: CeilingCurve, widest: float) -> Samples:
    threads = curve.mode == "threads"
    points = np.array([point for point in zip(curve.hp_p99, curve.total, strict=True) if point[0] <= widest])
    axes.plot(
        *points.reshape(-1, 2).T, color=FAMILIES["Orion, threads" if threads else "Orion, MPS"][0], linewidth=1.6,
        linestyle=(0, (5, 2)), label=f"queueing model, {'threads' if threads else 'MPS'}", zorder=1,
    )  # fmt: skip
    return points.reshape(-1, 2)


def _crosses(shown: Sequence[tuple[SystemFigures, Figure, Figure]]) -> list[list[tuple[float, float]]]:
    """Return the error bars of points as lines."""
    across = [[(x.low, y.median), (x.high, y.median)] for _, x, y in shown]
    return across + [[(x.median, y.low), (x.median, y.high)] for _, x, y in shown]


def _canvas(pair: PairFigures, title: str) -> tuple[Picture, Axes]:
    picture = Picture(figsize=SIZE, dpi=DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    axes.set_title(title, loc="left", fontsize=13, color=INK, fontweight="bold", pad=24)
    axes.annotate(
        pair.name, (0, 1), xycoords="axes fraction", xytext=(0, 9), textcoords="offset points", fontsize=10, color=INK
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=PALE, alpha=0.3, linewidth=0.6)
    axes.tick_params(labelsize=10)
    axes.xaxis.label.set_fontsize(11)
    axes.yaxis.label.set_fontsize(11)
    return picture, axes


def _legend_outside(axes: Axes, title: str | None) -> None:
    axes.legend(
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        frameon=False,
        fontsize=10,
        handlelength=2.6,
        title=title,
        title_fontsize=10,
        alignment="left",
    )


def _save(picture: Picture, path: Path) -> None:
    picture.savefig(path, format="png", metadata={"Software": None})


def _styles(systems: Sequence[SystemFigures]) -> Iterator[tuple[str, tuple[str, str | tuple[int, tuple[float, ...]]]]]:
    """Yield each system with its colour and line style; members of a family have different line styles."""
    seen: dict[str, int] = {}
    for system in systems:
        group = family(system.spec)
        member = seen[group] = seen.get(group, -1) + 1
        red, green, blue = to_rgb(FAMILIES[group][0])
        light = 0.55 if member // len(DASHES) % 2 else 1.0
        shade = to_hex((light * red, light * green, light * blue))
        yield system.system, (shade, DASHES[member % len(DASHES)])


def _point(axes: Axes, system: SystemFigures, x: Figure, y: Figure) -> Label:
    """Draw a system's point with its intervals; return its label."""
    colour, marker = FAMILIES[family(system.spec)]
    spans = [[[max(0.0, one.median - one.low)], [max(0.0, one.high - one.median)]] for one in (x, y)]
    axes.errorbar(
        [x.median], [y.median], xerr=spans[0], yerr=spans[1], fmt=marker, markersize=7.5, color=colour,
        ecolor=colour, elinewidth=0.9, markeredgecolor="white", markeredgewidth=0.6, zorder=3,
    )  # fmt: skip
    return Label(x.median, y.median, system.system, colour)


def _front_limits(axes: Axes, figures: Sequence[Figure], widest: float) -> None:
    """Set the limits and ticks of a logarithmic axis of ratios, up to `widest`."""
    low = min([0.97, *(one.low for one in figures)])
    axes.set_xlim(low / 1.02, min(widest, max([1.25, *(one.high for one in figures)])))
    ticks = (1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6)
    _ticks(axes.xaxis, [tick for tick in ticks if tick <= axes.get_xlim()[1]])


def _stretched_ratios(axes: Axes, figures: Sequence[Figure]) -> None:
    """Set an axis of ratios from 1 to hundreds. The axis is about linear up to 1.05, and logarithmic beyond."""
    axes.set_yscale(
        "function",
        functions=(lambda ratio: np.arcsinh((ratio - 1) / STRETCH), lambda height: 1 + STRETCH * np.sinh(height)),
    )
    low, high = min([0.98, *(one.low for one in figures)]), max([1.2, *(one.high for one in figures)])
    bottom, top = np.arcsinh((np.array([low, high]) - 1) / STRETCH)
    margin = 0.05 * (top - bottom)
    axes.set_ylim(*(1 + STRETCH * np.sinh(np.array([bottom - margin, top + margin]))))
    ticks = (0.5, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
    _ticks(axes.yaxis, [tick for tick in ticks if low - 0.02 <= tick <= high])


def _ticks(axis: Axis, ticks: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
