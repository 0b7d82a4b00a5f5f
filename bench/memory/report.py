"""The table of an output folder of `orion bench memory`."""

from pathlib import Path
from typing import Any

from orion.bench import raw_data
from orion.bench.memory import agent_cost, beside, changes, credit, density, growth, limit, moving, need
from orion.errors import Unreadable

_ROWS = {
    "changes": changes.rows,
    "growth": growth.rows,
    "beside": beside.rows,
    "density": density.rows,
    "limit": limit.rows,
    "moving": moving.rows,
    "need": need.rows,
    "agent": agent_cost.rows,
    "credit": credit.rows,
}


def analysed(folder: Path) -> list[dict[str, Any]]:
    """Return the figures of each setting.

    Raises:
        Unreadable: the folder has no run.
    """
    runs = [raw_data.read(path) for path in sorted(folder.glob("*.json.gz"))]
    if not runs:
        raise Unreadable(f"{folder} has no file of `orion bench memory`")
    return [
        {"setting": run["setting"]["name"], "figures": [row._asdict() | {"met": row.is_met} for row in rows]}
        for run in runs
        for rows in [_ROWS[run["setting"]["kind"]](run)]
    ]


def markdown(settings: list[dict[str, Any]]) -> str:
    """Return the table."""
    lines = ["| setting | figure | value | target | |", "|---|---|---|---|---|"]
    for setting in settings:
        for number, row in enumerate(setting["figures"]):
            target = "" if row["target"] is None else f"{'>=' if row['at_least'] else '<='} {row['target']:g}"
            met = {None: "", True: "met", False: "missed"}[row["met"]]
            name = setting["setting"] if not number else ""
            lines.append(f"| {name} | {row['figure']} | {row['text']} | {target} | {met} |")
    return "\n".join(lines) + "\n"
