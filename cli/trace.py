"""`orion trace`: looks at traces of jobs and requests."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.errors import Invalid, Unreadable

if TYPE_CHECKING:
    from orion.simulation.traces.reading import Trace
    from orion.simulation.traces.summary import Summary

app = typer.Typer(no_args_is_help=True, help="Look at traces of jobs and of requests.")
_SHOWN = 5  # skipped lines, of each kind, that people see


@app.callback()
def trace() -> None:
    """Look at traces of jobs and of requests."""


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The trace, plain or gzip.")],
    form: Annotated[
        str,
        typer.Option("--format", metavar="F", help="The trace's form, or how its name begins.", show_default="found"),
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.csv", help="Write the entries as CSV, too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a trace holds: entries, times, GPUs or tokens, and which lines were skipped and why.

    [bold]orion trace show BurstGPT_1.csv.gz[/bold]

    Forms: synergy, philly, alibaba-gpu-2023, kubeshare, kubeshare-seconds (jobs); azure-llm-2023, azure-llm-2024,
    burstgpt-1, burstgpt-2 (requests). The content decides; only kubeshare-seconds must be named.
    """
    from orion.simulation.traces.reading import NAMES, open_trace

    if form not in NAMES and not any(name.startswith(form) for name in NAMES):
        raise Invalid(f"--format cannot be {form!r}: the forms are {', '.join(sorted(NAMES))}")
    if output is not None and output.resolve() == file.resolve():
        raise Invalid(f"--output cannot be {str(output)!r}: that is the trace itself")
    found = open_trace(file, form)
    summary = _read(found)
    if output is not None:
        _save(output, found, summary)
    if as_json:
        print(json.dumps(summary.plain()))
    else:
        _print(file, summary, output)


def _read(found: "Trace") -> "Summary":
    """Return the summary; shows how far the reading is if standard error is a terminal."""
    from rich.console import Console

    from orion.simulation.traces.summary import Summary

    summary, console = Summary(found.name, found.kind), Console(stderr=True)
    with console.status(f"reading {found.path}") as status:
        for entry in found.entries(summary.skipped.append):
            summary.add(entry)
            if not summary.entries % 100_000:
                status.update(f"reading {found.path}: {summary.entries:,} {found.kind}")
    bad = [each for each in summary.skipped if each.is_bad]
    if not summary.entries and bad and len(bad) == len(summary.skipped):
        first = f"{found.path}, line {bad[0].line}: {bad[0].reason}"
        raise Unreadable(f"{first}; no line is an entry of the form {found.name}: check the file, or give --format")
    return summary


def _save(output: Path, found: "Trace", summary: "Summary") -> None:
    """Write the entries by arrival; the trace is read once more, so that it need not be held in memory."""
    from orion.simulation.traces.saving import save

    entries = found.entries(lambda skipped: None)
    ordered = entries if summary.is_sorted else iter(sorted(entries, key=lambda entry: entry.arrival_s))
    save(output, found.kind, ordered, summary.first_s)


def _print(file: Path, summary: "Summary", output: Path | None) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    found = summary.plain()
    console = Console(highlight=False, soft_wrap=True)
    what = summary.kind.removesuffix("s") if summary.entries == 1 else summary.kind
    console.print(f"[bold]{escape(str(file))}[/bold]: {summary.entries:,} {what} in the form {summary.form}")
    if summary.entries:
        rows = _rows(found)
        columns = [column for column in _COLUMNS if any(figures.get(column) is not None for _, figures in rows)]
        table = Table("", box=None, pad_edge=False)
        for column in columns:
            table.add_column(column, justify="right")
        for name, figures in rows:
            table.add_row(name, *(_figure(figures[column]) for column in columns))
        if rows:
            console.print(table)
        console.print(f"from the first to the last arrival: {found['last_s']:,.9g} s")
    if found.get("gpus"):
        console.print("GPUs: " + ", ".join(f"{count:,} x {gpus}" for gpus, count in found["gpus"].items()))
    for is_bad, what in ((False, "left out by the form's rule"), (True, "bad")):
        skipped = [each for each in summary.skipped if each.is_bad == is_bad]
        if skipped:
            console.print(f"[yellow]{len(skipped):,} {what}[/yellow]")
        for each in skipped[:_SHOWN]:
            console.print(f"  line {each.line}: {escape(each.reason)}")
        if len(skipped) > _SHOWN:
            console.print("  ... (--json lists all)")
    if output is not None:
        console.print(f"wrote {escape(str(output))}")


_COLUMNS = ("total", "min", "mean", "p50", "p99", "max")


def _rows(found: dict[str, Any]) -> list[tuple[str, dict[str, float | None]]]:
    names = {"duration_s": "duration (s)", "prompt_tokens": "prompt (tokens)", "output_tokens": "output (tokens)"}
    rows = [(title, found[name]) for name, title in names.items() if name in found]
    return [(title, figures) for title, figures in rows if any(value is not None for value in figures.values())]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
