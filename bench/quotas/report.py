"""The table of an output folder of `orion bench quotas`."""

from pathlib import Path
from typing import Any

import numpy as np

from orion.bench import raw_data
from orion.bench.quotas import shares
from orion.errors import Unreadable

CHANGE_SECONDS = 1.5
""" A part of a run begins so long after a change of its requests. """


def analysed(folder: Path) -> list[dict[str, Any]]:
    """Return what each slot of each run got.

    Raises:
        Unreadable: the folder has no run.
    """
    runs = [raw_data.read(path) for path in sorted(folder.glob("*.json.gz"))]
    if not runs:
        raise Unreadable(f"{folder} has no file of `orion bench quotas`")
    return [part for run in runs for part in _parts(run)]


def _parts(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one entry for a run, or one before and one after the change of its requests."""
    begin, end = run["window"]
    clients = run["setting"]["clients"]
    name, middle = run["setting"]["name"], (begin + end) / 2
    if not any("later_request" in client for client in clients):
        return [_part(run, name, begin, end, later=False)]
    return [
        _part(run, f"{name}, before", begin, middle, later=False),
        _part(run, f"{name}, after", middle + CHANGE_SECONDS, end, later=True),
    ]


def _part(run: dict[str, Any], name: str, begin: float, end: float, later: bool) -> dict[str, Any]:
    clients = run["setting"]["clients"]
    at = shares.times(begin, end)
    had = [shares.time_had(ends, rate, at) for ends, rate in zip(run["ends"], run["alone"], strict=True)]
    has_hp = any(client.get("priority") == "hp" for client in clients)
    found = shares.of(had, at, shares.dues(clients, later), has_hp)
    return {
        "setting": name,
        "sum": float(np.sum([each[-1] - each[0] for each in had]) / (at[-1] - at[0])),
        "slots": [
            {"workload": _named(client), "request": client.get("request"), "limit": client.get("limit")}
            | each.to_json()
            for client, each in zip(clients, found, strict=True)
        ],
    }


def _named(client: dict[str, Any]) -> str:
    options = " ".join(f"{name}={value}" for name, value in client.get("options", {}).items())
    role = "hp: " if client.get("priority") == "hp" else ""
    several = f" x {client['processes']}" if client.get("processes", 1) > 1 else ""
    return role + f"{client['workload']} {options}".strip() + several


def markdown(parts: list[dict[str, Any]]) -> str:
    """Return the table; shares in percent, deviations in points."""
    lines = [
        "| setting | slot | request | limit | due % | got % | 95 % of 1 s | all 1 s | all 10 s | sum over alone |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for part in parts:
        for number, slot in enumerate(part["slots"]):
            tens = "" if slot["tens_most"] is None else f"{100 * slot['tens_most']:.2f}"
            cells = [
                part["setting"] if not number else "", slot["workload"], _part_of(slot["request"]),
                _part_of(slot["limit"]), f"{100 * slot['due']:.1f}", f"{100 * slot['mean']:.2f}",
                f"{100 * slot['seconds_95']:.2f}", f"{100 * slot['seconds_most']:.2f}", tens,
                f"{part['sum']:.3f}" if not number else "",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _part_of(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
