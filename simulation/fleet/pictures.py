"""Who runs where over a day, the use of the GPUs over time, and what users feel: pictures of a plan as SVG."""

from collections.abc import Sequence
from typing import Any

from orion.planning.fleet.fleets import Fleet, Placement
from orion.planning.fleet.waiting import busy, busy_periods
from orion.simulation.report.pictures import svg

from .answer import Answer

_SERVICES = ("#1f5f99", "#2a9d8f", "#6a4c93", "#0b7285", "#3d5a80", "#5f7d2e", "#8d3b72", "#44617b")
_JOBS = ("#e9a23b", "#e76f51", "#f2c879", "#c96b8a", "#d9b08c", "#b5651d", "#f4978e", "#cfa616")
_REST = "#adb5bd"
_STEPS_PER_HOUR = 4


def _colours(found: Answer) -> dict[str, str]:
    """Return a colour for each workload; the ninth of a kind and all later ones share a colour."""
    fleet = found.plan.fleet
    jobs = [each.name for each in fleet.training] + [each.name for each in fleet.batches]
    colours = {}
    for names, palette in (([each.name for each in fleet.services], _SERVICES), (jobs, _JOBS)):
        for at, name in enumerate(names):
            colours[name] = palette[at] if at < len(palette) else _REST
    return colours


def who_runs_where(found: Answer) -> str:
    """Return a row for each GPU: the services in its lower half, best-effort work in its upper half."""
    colours = _colours(found)
    bars: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = {}
    for each in found.plan.placements:
        rows = bars.setdefault((each.role, each.workload), {})
        rows.setdefault(each.gpu, []).append((each.from_h, each.to_h - each.from_h))

    def plot(axes: Any) -> None:
        named: dict[str, Any] = {}
        for (role, name), rows in sorted(
            bars.items(), key=lambda bar: (bar[0][0] == "be", list(colours).index(bar[0][1]))
        ):
            for gpu, spans in rows.items():
                bar = axes.broken_barh(
                    _joined(spans), (gpu - (0.42 if role == "be" else 0.02), 0.42), color=colours[name], linewidth=0
                )
                named.setdefault("others" if colours[name] == _REST else name, bar)
        axes.set(
            xlim=(0, found.plan.fleet.hours), ylim=(max(found.plan.gpus, 1) - 0.4, -0.6), xlabel="hour", ylabel="GPU"
        )
        _hours(axes, found.plan.fleet)
        axes.yaxis.get_major_locator().set_params(integer=True)
        if named:
            axes.legend(
                named.values(), named.keys(), loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=6, frameon=False
            )

    return svg(plot, (9.0, min(16.0, 1.8 + 0.16 * found.plan.gpus)))


def use_over_time(found: Answer) -> str:
    """Return how many GPUs' time services and best-effort work use, stacked, against the number of GPUs."""
    fleet = found.plan.fleet
    times = [step / _STEPS_PER_HOUR for step in range(int(fleet.hours * _STEPS_PER_HOUR) + 1)]
    layers = list(zip(*(_used(fleet, found.plan.placements, at_h) for at_h in times), strict=True))

    def plot(axes: Any) -> None:
        labels = ("services", "best-effort work beneath services", "best-effort work alone on GPUs", "context switches")
        colours = (_SERVICES[0], _JOBS[0], _JOBS[1], "#868e96")
        axes.stackplot(times, *layers, labels=labels, colors=colours, step="post", linewidth=0)
        axes.axhline(found.plan.gpus, color="#1f2933", linewidth=1.2)
        axes.annotate(
            f"{found.plan.gpus} GPUs",
            (fleet.hours, found.plan.gpus),
            xytext=(-2, 4),
            textcoords="offset points",
            ha="right",
        )
        separate = sum(found.plan.separate.values())
        axes.axhline(separate, color="#868e96", linewidth=1.2, linestyle="--")
        axes.annotate(
            f"{separate} GPUs, each workload alone",
            (fleet.hours, separate),
            xytext=(-2, 4),
            textcoords="offset points",
            ha="right",
            color="#52606d",
        )
        axes.set(
            xlim=(0, fleet.hours),
            ylim=(0, 1.12 * max(separate, found.plan.gpus, 1)),
            xlabel="hour",
            ylabel="GPUs in use",
        )
        _hours(axes, fleet)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False)

    return svg(plot)


def what_users_feel(found: Answer) -> str:
    """Return the p99 of each service as a part of its objective, apart and shared."""
    objectives = {each.name: each.objective_s * 1e3 for each in found.plan.fleet.services}
    pairs = zip(found.apart, found.shared, strict=True)
    rows = [(after.name, before.p99_ms, after.p99_ms) for before, after in pairs if before.p99_ms and after.p99_ms]

    def plot(axes: Any) -> None:
        for offset, column, label, colour in (
            (-0.2, 1, "GPUs of its own", "#adb5bd"),
            (0.2, 2, "shared", _SERVICES[0]),
        ):
            places = [at + offset for at in range(len(rows))]
            parts = [float(row[column] or 0.0) / objectives[row[0]] for row in rows]
            axes.barh(places, parts, height=0.38, color=colour, label=label)
            for place, part, row in zip(places, parts, rows, strict=True):
                axes.text(part + 0.01, place, f"{row[column]:.1f} ms", va="center", fontsize=8)
        axes.axvline(1.0, color="#c92a2a", linewidth=1.2)
        axes.set_yticks(range(len(rows)), [f"{row[0]} (objective {objectives[row[0]]:g} ms)" for row in rows])
        axes.set(
            xlim=(0, max(1.1, axes.get_xlim()[1])),
            ylim=(len(rows) - 0.5, -0.5),
            xlabel="p99, as a part of the objective",
        )
        axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.2), ncols=2, frameon=False)

    return svg(plot, (9.0, 1.4 + 0.5 * len(rows)))


def _hours(axes: Any, fleet: Fleet) -> None:
    step = max(1, round(fleet.hours / 12))
    axes.set_xticks(range(0, int(fleet.hours) + 1, step))


def _joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans of (begin, length) with neighbours joined, so that a picture holds few shapes."""
    joined: list[tuple[float, float]] = []
    for begin_h, length_h in sorted(spans):
        if joined and begin_h - (joined[-1][0] + joined[-1][1]) < 1e-6:
            joined[-1] = joined[-1][0], begin_h + length_h - joined[-1][0]
        else:
            joined.append((begin_h, length_h))
    return joined


def _used(fleet: Fleet, placements: Sequence[Placement], at_h: float) -> tuple[float, float, float, float]:
    """Return the GPUs' time that services, work beneath them, work alone and context switches use at a time."""
    services = {each.name: each for each in fleet.services}
    here = [each for each in placements if each.from_h <= at_h < each.to_h]
    loads: dict[int, list[tuple[float, float]]] = {}
    for each in here:
        if each.role == "hp":
            loads.setdefault(each.gpu, []).append((each.rate, services[each.workload].service_s))
    hp, beneath, alone, switches = sum(map(busy, loads.values())), 0.0, 0.0, 0.0
    for each in here:
        if each.role == "be":
            speed = each.work_gpu_h / (each.to_h - each.from_h)
            if each.way == "beneath":
                beneath += speed
                switches += busy_periods(loads.get(each.gpu, [])) * fleet.switch_s
            else:
                alone += speed
    return hp, beneath, alone, switches
