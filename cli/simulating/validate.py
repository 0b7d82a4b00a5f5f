"""`orion simulate validate`: predictions beside measurements; orion.bench.colocation.predicted_pairs makes them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.errors import NotFound

if TYPE_CHECKING:
    from orion.bench.colocation.predicted_pairs import Archive, Figures, PairResult

SCHEMA = "orion.simulate.validate/1"
TABLE_WIDTH = 150  # a narrower terminal wraps lines, so that no figure is cut
FIGURES = ("be", "hp_p50", "hp_p99")
LIMITS = {"be": 0.05, "hp_p50": 0.10, "hp_p99": 0.08}
LIMITS_BESIDE_PRODUCTS = {"be": 0.05, "hp_p50": 0.15, "hp_p99": 0.15}
"""Errors above these parts of the measured value are marked. The second row is for be that computes matrix products."""
MOST_FAULTS = 10


def validate(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE.tgz|DIR", help="An output of orion bench colocation, packed or not.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict each pair of a measurement from hp alone and be alone, beside what was measured.

    The prediction does not use the runs of hp beside be. It needs no GPU.

    [bold]orion simulate validate results/essentials[/bold]
    """
    from orion.bench.colocation.predicted_pairs import predict_all
    from orion.simulation.gpu.h200 import H200

    with _unpacked(archive) as folder:
        found = predict_all(folder, H200, str(archive))
    if not any(pair.predicted for pair in found.pairs):
        raise NotFound(f"{archive}: no pair could be predicted: {_why_none(found)}")
    notes = [
        f"{archive.name} was measured on {gpu}, but the constants are those of {H200.gpu}: expect larger errors"
        for gpu in found.gpus
        if gpu != H200.gpu
    ]
    if as_json:
        typer.echo(json.dumps(_report(archive, found, notes, H200.gpu)))
    else:
        _print(archive, found, notes)


@contextmanager
def _unpacked(archive: Path) -> Iterator[Path]:
    """Yield the folder; for a file, a temporary folder that is removed at the end."""
    if archive.is_dir():
        yield archive
        return
    if not archive.exists():
        raise NotFound(f"there is no {archive}: give an output of `orion bench colocation`, packed or not")
    import tempfile

    from orion.bench.colocation import packing

    with tempfile.TemporaryDirectory(prefix="orion-validate-") as folder:
        packing.unpack(archive, Path(folder))
        yield Path(folder)


def _why_none(found: "Archive") -> str:
    reasons = [*dict.fromkeys(pair.reason for pair in found.pairs if pair.reason), *found.faults]
    return reasons[0] if reasons else "it has no pairs"


def _report(archive: Path, found: "Archive", notes: list[str], constants: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "archive": archive.name,
        "constants": constants,
        "gpus": found.gpus,
        "notes": notes,
        "faults": found.faults,
        "pairs": [_row(pair) for pair in found.pairs],
    }


def _row(pair: "PairResult") -> dict[str, Any]:
    asked = pair.asked
    return {
        "hp": asked.hp,
        "be": asked.be,
        "system": asked.system,
        "mode": _mode(pair),
        "be_count": asked.be_count,
        "hp_open_loop": pair.open_loop,
        "round": None,
        "predicted": asdict(pair.predicted) if pair.predicted else None,
        "measured": asdict(pair.measured) if pair.measured else None,
        "reason": pair.reason,
        "error": {name: _error(pair, name) for name in FIGURES},
    }


def _mode(pair: "PairResult") -> str | None:
    """Return how hp and be share the GPU; None for another project's scheduler."""
    modes = {
        "timeslice": "timeslice",
        "mps": "mps",
        "plain-streams": "threads",
        "orion": pair.asked.mode or "timeslice",
    }
    return modes.get(pair.asked.kind)


def _error(pair: "PairResult", name: str) -> float | None:
    """Return by which part of the measured value the prediction is too high."""
    predicted, measured = _value(pair.predicted, name), _value(pair.measured, name)
    return predicted / measured - 1 if predicted is not None and measured else None


def _value(figures: "Figures | None", name: str) -> float | None:
    value: float | None = getattr(figures, name) if figures else None
    return value


def _print(archive: Path, found: "Archive", notes: list[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, TABLE_WIDTH)
    shown = [pair for pair in found.pairs if pair.predicted]
    console.print(f"{archive.name}: {len(shown)} of {len(found.pairs)} pairs predicted", markup=False)
    console.print(_table(shown))
    missed = [name for pair in shown for name in FIGURES if _is_large(pair, name)]
    compared = sum(_error(pair, name) is not None for pair in shown for name in FIGURES)
    if compared:
        console.print(f"errors above their limit: {len(missed)} of {compared} (marked with !)")
    for reason in dict.fromkeys(pair.reason for pair in found.pairs if pair.reason):
        names = dict.fromkeys(pair.asked.system for pair in found.pairs if pair.reason == reason)
        console.print(f"not predicted: {', '.join(names)}: {reason}", markup=False)
    for fault in found.faults[:MOST_FAULTS]:
        typer.echo(f"orion: {fault}", err=True)
    if len(found.faults) > MOST_FAULTS:
        typer.echo(
            f"orion: {len(found.faults) - MOST_FAULTS} more runs are missing or broken (--json lists them)", err=True
        )
    for note in notes:
        typer.echo(f"orion: {note}", err=True)


def _table(pairs: "list[PairResult]") -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("hp", "be", "system"):
        table.add_column(title, overflow="fold")
    for title in ("be", "measured", "error", "p50 ms", "measured", "error", "p99 ms", "measured", "error"):
        table.add_column(title, justify="right", no_wrap=True)
    for pair in pairs:
        cells = []
        for name in FIGURES:
            digits = 3 if name == "be" else 2
            values = (_value(pair.predicted, name), _value(pair.measured, name))
            cells += ["" if value is None else f"{value:.{digits}f}" for value in values]
            error = _error(pair, name)
            cells.append("" if error is None else f"{100 * error:+.1f} %" + ("!" if _is_large(pair, name) else " "))
        table.add_row(pair.asked.hp, pair.asked.be, pair.asked.system, *cells)
    return table


def _is_large(pair: "PairResult", name: str) -> bool:
    error = _error(pair, name)
    limits = LIMITS_BESIDE_PRODUCTS if json.loads(pair.asked.work_key)[0] == "gemm" else LIMITS
    return error is not None and abs(error) > limits[name]
