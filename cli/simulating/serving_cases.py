"""`orion simulate serving --cases FILE`: many cases, planned; orion.simulation.serving.cases_runs does the work."""

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from orion.cli import extras
from orion.errors import Conflict, Invalid

if TYPE_CHECKING:
    from orion.planning.serving.cases import Case, Limits
    from orion.simulation.serving.cases_runs import Chunk, Setting

ORION = "orion"
""" The one planner whose parts the user may limit. """
MOST_SEARCHED = 8
""" GPUs that full search takes; it tries 65,536 ways for a case that has no plan. """


@dataclass(frozen=True)
class Options:
    """The options as the user wrote them; see `orion simulate serving --help`."""

    cases: Path | None
    profiles: Path | None
    facts: Path | None
    interference: Path | None
    gpus: int | None
    planner: str
    parts_per_gpu: int | None
    part_sizes: str | None
    confirm: float
    workers: int
    output: Path | None


class Tally:
    """What one planner reached."""

    def __init__(self) -> None:
        self.schedulable = self.gpus = self.held = 0
        self.seconds = 0.0

    def add(self, chunk: "Chunk", seconds: float) -> None:
        """Count decided cases, and the time that passed until they came."""
        self.seconds += seconds
        for row in chunk.rows:
            self.schedulable += row["schedulable"]
            self.gpus += row["gpus"]
            self.held += bool(row.get("held"))


def run(options: Options, *, as_json: bool) -> None:
    """Plan each case of a file; write plans.jsonl, and print what each planner reached.

    Raises:
        OrionError: with a sentence.
    """
    extras.require("numpy", "it simulates requests")
    from orion.simulation.serving import cases_lines, cases_measured, cases_runs
    from orion.simulation.whole_files import write

    file, profiles = _given(options.cases, "FILE"), _given(options.profiles, "--profiles TABLE.csv")
    facts, output = _given(options.facts, "--facts FILE.json"), _given(options.output, "--output DIR")
    tallies = {planner: Tally() for planner in _planners(options.planner)}
    limits = _limits(options, list(tallies))
    read = cases_measured.read(profiles, facts, options.interference)
    smallest = min(share for model in read.measured.models.values() for share in model.latency.points)
    if limits.part_sizes is not None and limits.part_sizes[0] < smallest:
        raise Invalid(
            f"--part-sizes cannot have {limits.part_sizes[0]}: {profiles} has no time below {smallest} % of a GPU"
        )
    for note in read.notes:
        typer.echo(f"orion: {note}", err=True)
    cases = cases_lines.read(file, read.measured.models)
    setting = cases_runs.Setting(read.measured, limits, options.confirm)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Conflict(f"{output} cannot be made: {error.strerror}; choose another --output") from error
    kept_file = output / f".plans-{cases_runs.digest(setting, list(tallies), cases)}"
    chunks = _kept(kept_file)
    try:
        write(output / "plans.jsonl", _lines(setting, tallies, cases, options.workers, chunks))
    except KeyboardInterrupt:
        write(kept_file, (json.dumps([chunk.planner, chunk.rows]) + "\n" for chunk in chunks))
        count = sum(len(chunk.rows) for chunk in chunks)
        typer.echo(f"orion: stopped; {count} plans are kept: the same command goes on with the others", err=True)
        raise
    kept_file.unlink(missing_ok=True)
    if as_json:
        typer.echo(json.dumps(_report(len(cases), tallies, options, read.notes)))
    else:
        _print(len(cases), tallies, options)


def _given(value: Path | None, form: str) -> Path:
    if value is None:
        raise Invalid(f"--cases needs {form}")
    return value


def _planners(text: str) -> list[str]:
    from orion.planning.serving.planners import PLANNERS

    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in PLANNERS:
            raise Invalid(f"--planner cannot be {name!r}: the planners are {', '.join(PLANNERS)}")
    return names


def _limits(options: Options, planners: Sequence[str]) -> "Limits":
    from orion.planning.serving.cases import Limits

    if options.gpus is None:
        raise Invalid("--cases needs --gpus N, the GPUs of one case")
    if not math.isfinite(options.confirm):
        raise Invalid(f"--confirm cannot be {options.confirm}: give seconds")
    if "full-search" in planners and options.gpus > MOST_SEARCHED:
        raise Invalid(f"--planner full-search tries 4^N ways to divide N GPUs: give at most {MOST_SEARCHED} --gpus")
    flags = {"--parts-per-gpu": options.parts_per_gpu, "--part-sizes": options.part_sizes}
    given = [flag for flag, value in flags.items() if value is not None]
    fixed = [name for name in planners if name != ORION]
    if given and fixed:
        raise Invalid(f"{given[0]} is for --planner {ORION}, and {fixed[0]} has its own parts: leave it out")
    sizes = None if options.part_sizes is None else _sizes(options.part_sizes)
    return Limits(options.gpus, options.parts_per_gpu, sizes)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        found = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1 or found[-1] > 100:
        raise Invalid(f"--part-sizes cannot be {text!r}: give percentages from 1 to 100 with commas between")
    return found


def _kept(file: Path) -> "list[Chunk]":
    """Return the chunks that an interrupted command has left; none if the file cannot be used."""
    from orion.simulation.serving.cases_runs import Chunk

    try:
        return [Chunk(*json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, TypeError):
        return []


def _lines(
    setting: "Setting", tallies: dict[str, Tally], cases: "Sequence[Case]", workers: int, chunks: "list[Chunk]"
) -> Iterator[str]:
    """Yield the lines of plans.jsonl, count them, and show the progress.

    Args:
        setting: what all decisions have in common.
        tallies: changed: what each planner reached.
        cases: the cases.
        workers: the number of processes.
        chunks: the chunks that were kept; the others are added.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(), TextColumn("left"),
        console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True, refresh_per_second=4,
    )  # fmt: skip
    bar = bars.add_task("planning", total=len(tallies) * len(cases))
    last = time.perf_counter()
    with bars:
        for chunk in chain(tuple(chunks), _made(setting, tallies, cases, workers, chunks)):
            now = time.perf_counter()
            tallies[chunk.planner].add(chunk, now - last)
            last = now
            bars.update(bar, description=chunk.planner, advance=len(chunk.rows))
            yield from (json.dumps(row) + "\n" for row in chunk.rows)


def _made(
    setting: "Setting", tallies: dict[str, Tally], cases: "Sequence[Case]", workers: int, chunks: "list[Chunk]"
) -> "Iterator[Chunk]":
    """Yield the chunks that are missing, and add each."""
    from orion.simulation.serving.cases_runs import decide_all

    for chunk in decide_all(setting, list(tallies), cases, workers, len(chunks)):
        chunks.append(chunk)
        yield chunk


def _report(cases: int, tallies: dict[str, Tally], options: Options, notes: Sequence[str]) -> dict[str, Any]:
    return {
        "schema": "orion.simulate.serving.cases/1",
        "cases": cases,
        "planners": [
            {
                "planner": planner,
                "schedulable": tally.schedulable,
                "gpus": tally.gpus,
                "held": tally.held if options.confirm else None,
                "seconds": round(tally.seconds, 3),
            }
            for planner, tally in tallies.items()
        ],
        "notes": list(notes),
        "files": [str(options.output and options.output / "plans.jsonl")],
    }


def _print(cases: int, tallies: dict[str, Tally], options: Options) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("planner")
    for title in ("cases", "schedulable", "GPUs", *(("held",) if options.confirm else ()), "seconds"):
        table.add_column(title, justify="right")
    for planner, tally in tallies.items():
        held = (str(tally.held),) if options.confirm else ()
        table.add_row(
            planner, str(cases), str(tally.schedulable), str(tally.gpus), *held, f"{tally.seconds:.1f}"
        )  # fmt: skip
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(f"wrote {options.output}/plans.jsonl")
