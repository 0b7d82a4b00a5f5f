"""Rows of the experiments' tables."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One row: what was measured, its values, and the target in words."""

    what: str
    values: Sequence[float]
    target: str = ""
    unit: str = "s"
    """ `s` and `ms` are durations, and the values are seconds; another unit is that of the values. """


def table(figures: Sequence[Figure]) -> str:
    """Return the rows as Markdown."""
    lines = ["| | median | p99 | largest | samples | target |", "|---|---|---|---|---|---|"]
    return "\n".join([*lines, *map(_row, figures)])


def _row(figure: Figure) -> str:
    if not figure.values:
        return f"| {figure.what} | not seen | | | 0 | {figure.target} |"
    values = sorted(figure.values)
    p99 = values[min(len(values) - 1, int(len(values) * 0.99))]
    shown = " | ".join(_text(each, figure.unit) for each in (statistics.median(values), p99, values[-1]))
    return f"| {figure.what} | {shown} | {len(values)} | {figure.target} |"


def _text(value: float, unit: str) -> str:
    if unit == "ms":
        return f"{1e3 * value:.1f} ms"
    if unit == "s":
        return f"{value:.2f} s"
    return f"{value:g} {unit}".strip()
