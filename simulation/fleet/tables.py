"""The tables that `orion plan` shows, on a terminal and on its page."""

from collections.abc import Sequence

from orion.planning.fleet.fleets import Placement
from orion.simulation.report.page import Table

from .answer import Answer, at_hour


def services(found: Answer) -> Table:
    """Return what each service has and feels, apart and shared."""
    objectives = {each.name: each.objective_s for each in found.plan.fleet.services}
    rows = [
        [
            after.name, str(before.gpus), str(after.gpus), f"{objectives[after.name] * 1e3:g}",
            _number(before.p99_ms), _number(after.p99_ms), _percent(before.miss_ratio), _percent(after.miss_ratio),
        ]
        for before, after in zip(found.apart, found.shared, strict=True)
    ]  # fmt: skip
    columns = [
        "service",
        "GPUs apart",
        "shared",
        "objective (ms)",
        "p99 apart (ms)",
        "shared",
        "missed apart",
        "shared",
    ]
    return Table("What users feel", columns, rows)


def jobs(found: Answer) -> Table:
    """Return when jobs end."""
    limits = {each.name: each.by_h for each in found.plan.fleet.training}
    limits |= {each.name: each.to_h for each in found.plan.fleet.batches}
    works = {each.name: each.work_gpu_h * each.count for each in found.plan.fleet.training}
    works |= {each.name: each.work_gpu_h for each in found.plan.fleet.batches}
    beneath = dict.fromkeys(limits, 0.0)
    for each in found.plan.placements:
        if each.way == "beneath":
            beneath[each.workload] += each.work_gpu_h
    rows = []
    for name, limit_h in limits.items():
        ends = [each.end_h for each in found.plan.ends if each.name == name]
        placed = [end_h for end_h in ends if end_h is not None]
        if ends:
            rows.append([
                name, f"{len(placed)} of {len(ends)}", f"{works[name]:g}", f"{beneath[name]:.1f}",
                at_hour(found, max(placed), 1) if placed else "", at_hour(found, limit_h),
            ])  # fmt: skip
    columns = ["training, batch", "placed", "work (GPU-h)", "beneath services", "last end (h)", "limit (h)"]
    return Table("When jobs end", columns, rows)


def hours(found: Answer) -> Table:
    """Return hour by hour how many GPUs each workload has; equal hours are one row."""
    rows: list[list[str]] = []
    names = [each.name for each in found.plan.fleet.services]
    for hour in range(int(-(-found.plan.fleet.hours // 1))):
        here = [each for each in found.plan.placements if each.from_h < hour + 1 and each.to_h > hour]
        cells = [
            _counted([each for each in here if each.role == "hp"], names),
            _counted([each for each in here if each.way == "beneath"], []),
            _counted([each for each in here if each.role == "be" and each.way == "exclusive"], []),
            str(found.plan.gpus - len({each.gpu for each in here})),
        ]
        if rows and rows[-1][1:] == cells:
            rows[-1][0] = f"{rows[-1][0].partition('-')[0]}-{hour + 1}"
        else:
            rows.append([f"{hour}-{hour + 1}", *cells])
    return Table("Who runs where", ["hours", "services", "beneath them", "alone on GPUs", "unused GPUs"], rows)


def compared(answers: Sequence[Answer], changes: Sequence[str]) -> Table:
    """Return two answers side by side."""
    titles = ["", "as it is", ", ".join(changes)]
    rows = [
        ["GPUs apart", *(str(sum(each.plan.separate.values())) for each in answers)],
        ["GPUs shared", *(str(each.plan.gpus) for each in answers)],
        ["saved", *("" if each.saved is None else str(each.saved) for each in answers)],
    ]
    for name in dict.fromkeys(felt.name for each in answers for felt in each.shared):
        of = [next((felt for felt in each.shared if felt.name == name), None) for each in answers]
        rows.append([f"{name}: GPUs", *("" if felt is None else str(felt.gpus) for felt in of)])
        rows.append([f"{name}: p99 (ms)", *("" if felt is None else _number(felt.p99_ms) for felt in of)])
    for name in dict.fromkeys(end.name for each in answers for end in each.plan.ends):
        cells = []
        for each in answers:
            ends = [end.end_h for end in each.plan.ends if end.name == name]
            last_h = max(filter(None, ends), default=0.0)
            cells.append("not placed" if None in ends or not ends else at_hour(each, last_h, 1))
        rows.append([f"{name}: last end (h)", *cells])
    return Table("Side by side", titles, rows)


def _counted(placements: Sequence[Placement], first: Sequence[str]) -> str:
    gpus: dict[str, set[int]] = {name: set() for name in first}
    for each in placements:
        gpus.setdefault(each.workload, set()).add(each.gpu)
    return ", ".join(f"{name} {len(those)}" for name, those in gpus.items() if those)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.2f} %"
