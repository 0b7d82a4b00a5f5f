"""The demo's picture: which process used the GPU during 100 ms, without and with Orion, and hp's latencies."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from orion.bench.demo_phases import Outcome, Phase
from orion.bench.samples import percentile
from orion.bench.workload import Span

HP, BE, INK, PALE = "#1f5fbf", "#f0a23a", "#22262b", "#9aa1a9"
ALONE = "#2f9e6e"
SHORTEST_GAP = 60e-6  # seconds; shorter pauses between kernels would be invisible in the picture
ROWS = {"hp": (1.1, 0.8), "be": (0.1, 0.8)}  # bottom and height of each row


def draw(outcome: Outcome, path: Path) -> None:
    """Write the picture as PNG."""
    figure = Figure(figsize=(13.0, 6.2), dpi=130, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=[1.85, 1.0])
    upper = figure.add_subplot(grid[0, 0])
    lower = figure.add_subplot(grid[1, 0], sharex=upper)
    alone, unmanaged, orion = outcome.phases
    _timeline(upper, unmanaged, outcome, "Unmanaged: the hardware alternates time slices")
    _timeline(lower, orion, outcome, "Orion: be waits while hp has work")
    upper.tick_params(axis="x", labelbottom=False)
    lower.set_xlabel(f"time, ms (a window of {1e3 * (outcome.window[1] - outcome.window[0]):.0f} ms)")
    _distribution(figure.add_subplot(grid[:, 1]), alone, unmanaged, orion)
    device = f"{outcome.gpu}, simulated" if outcome.simulated and "imulated" not in outcome.gpu else outcome.gpu
    figure.suptitle(
        f"One GPU ({device}), hp {outcome.rate:g} requests/s with a training process beside it",
        fontsize=13,
        color=INK,
        fontweight="bold",
    )
    figure.savefig(path, format="png")


def merged(spans: list[Span], window: Span, shortest_gap: float = SHORTEST_GAP) -> list[Span]:
    """Return the spans inside a window; spans that are less than `shortest_gap` seconds apart become one."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        begin, end = max(begin, window[0]), min(end, window[1])
        if begin >= end:
            continue
        if joined and begin - joined[-1][1] < shortest_gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def _timeline(axes: Axes, phase: Phase, outcome: Outcome, title: str) -> None:
    window = outcome.window
    for role, spans, colour in (("hp", phase.hp_spans, HP), ("be", phase.be_spans, BE)):
        bars = [(1e3 * (begin - window[0]), 1e3 * (end - begin)) for begin, end in merged(spans, window)]
        axes.broken_barh(bars, ROWS[role], facecolors=colour, edgecolor="none")
    arrivals = [1e3 * (arrival - window[0]) for arrival in outcome.arrivals if window[0] <= arrival < window[1]]
    axes.plot(arrivals, [2.12] * len(arrivals), linestyle="none", marker="v", color=INK, markersize=6, clip_on=False)
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.set_xlim(0, 1e3 * (window[1] - window[0]))
    axes.set_ylim(0, 2.3)
    axes.set_yticks([0.5, 1.5], ["be", "hp"], fontsize=11)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color=PALE, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    p99 = percentile(phase.latencies_ms, 99)
    note = f"hp p99 {p99:.1f} ms     be {phase.be_per_second:,.0f} {phase.be_unit}/s"
    axes.set_title(note, loc="right", fontsize=10, color=INK)
    handles = [Patch(color=HP), Patch(color=BE), axes.lines[0]]
    if phase.name == "unmanaged":
        names = ["the GPU works for hp", "the GPU works for be", "a request arrives"]
        axes.legend(handles, names, loc="lower left", bbox_to_anchor=(0.0, -0.2), ncols=3, frameon=False, fontsize=9)


def _distribution(axes: Axes, alone: Phase, unmanaged: Phase, orion: Phase) -> None:
    """Draw the share of requests that took longer than each latency; logarithmic axes show the tail in detail."""
    reference = percentile(alone.latencies_ms, 99)
    for phase, colour, width, dashes in (
        (alone, ALONE, 4.0, "-"),
        (unmanaged, PALE, 2.0, "-"),
        (orion, HP, 2.0, (0, (4, 1.5))),
    ):
        ordered = sorted(phase.latencies_ms)
        longer = [1 - (number + 0.5) / len(ordered) for number in range(len(ordered))]
        ratio = percentile(ordered, 99) / reference
        label = phase.name if phase is alone else f"{phase.name}: p99 {ratio:.2f} x alone"
        axes.plot(ordered, longer, color=colour, linewidth=width, linestyle=dashes, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_yticks([1, 0.5, 0.1, 0.05, 0.01], ["all", "50 %", "10 %", "5 %", "1 %"])
    axes.minorticks_off()
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick >= min(alone.latencies_ms) * 0.7]
    slowest = max(max(alone.latencies_ms), max(unmanaged.latencies_ms), max(orion.latencies_ms))
    ticks = [tick for tick in ticks if tick <= slowest * 1.5]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.axhline(0.01, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xlabel("latency from the scheduled arrival, ms")
    axes.set_title("hp requests that took longer than ...", loc="left", fontsize=11, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=PALE, alpha=0.3, linewidth=0.6)
    axes.legend(loc="upper right", frameon=False, fontsize=9)
