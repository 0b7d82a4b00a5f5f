"""Writes a trace as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from orion.simulation.whole_files import write

from .entries import Entry, JobEntry

JOBS = ("job_id", "arrival_s", "gpus", "duration_s", "model", "iterations")
REQUESTS = ("arrival_s", "prompt_tokens", "output_tokens", "model")
""" Columns; those of requests begin with the columns of an arrivals file. """


def save(path: Path, kind: str, entries: Iterable[Entry], first_s: float) -> None:
    """Write entries, with arrival times that count from the first arrival; the file appears when it is complete.

    Args:
        path: the new file; it replaces a file of that name.
        kind: jobs or requests.
        entries: the entries in the order of the new file.
        first_s: the first arrival on the trace's own clock.

    Raises:
        Conflict: the file cannot be written; an earlier file of that name stays unchanged.
    """
    write(path, _lines(JOBS if kind == "jobs" else REQUESTS, entries, first_s))


def _lines(header: tuple[str, ...], entries: Iterable[Entry], first_s: float) -> Iterator[str]:
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    writer.writerow(header)
    for entry in entries:
        writer.writerow(_cells(entry, entry.arrival_s - first_s))
        yield line.getvalue()
        line.seek(0)
        line.truncate()
    yield line.getvalue()  # what is not yielded yet: without entries, that is the header


def _cells(entry: Entry, arrival_s: float) -> tuple[str, ...]:
    arrival = _decimals(arrival_s)
    if isinstance(entry, JobEntry):
        duration = "" if entry.duration_s is None else _decimals(entry.duration_s)
        iterations = "" if entry.iterations is None else str(entry.iterations)
        return entry.name, arrival, f"{entry.gpus:g}", duration, entry.model, iterations
    return arrival, str(entry.prompt_tokens), str(entry.output_tokens), entry.model


def _decimals(seconds: float) -> str:
    """Return seconds to the nanosecond, without zeros at the end."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".")
