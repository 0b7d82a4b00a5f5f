"""Finds the form of a trace by its content, and reads it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orion.errors import Invalid, Unreadable

from . import columns, philly
from .columns import FORMS, Columns
from .entries import Entry, JobEntry, OnSkip, Skipped
from .numbers import shown
from .text import pieces

PHILLY = "philly"
NAMES = (*(form.name for form in FORMS), PHILLY)
_HEAD_BYTES, _HEAD_LINES = 1 << 16, 20


@dataclass(frozen=True)
class Trace:
    """A file whose form is known.

    Attributes:
        path: the path of the file.
        name: the name of the form, one of `NAMES`.
        kind: jobs or requests.
    """

    path: Path
    name: str
    kind: str
    _columns: Columns | None

    def entries(self, on_skip: OnSkip) -> Iterator[Entry]:
        """Yield jobs or requests in the order of the file.

        Args:
            on_skip: called for every line that gives no entry.

        Raises:
            Unreadable: the file cannot be read to its end.
        """
        lines: dict[str, int] = {}
        found = columns.entries(self._columns, self.path) if self._columns else philly.entries(self.path)
        for entry in found:
            if isinstance(entry, Skipped):
                on_skip(entry)
            elif isinstance(entry, JobEntry) and entry.name in lines:
                before = f"the job {shown(entry.name)} is on line {lines[entry.name]} already"
                on_skip(Skipped(entry.line, before, is_bad=True))
            else:
                if isinstance(entry, JobEntry):
                    lines[entry.name] = entry.line
                yield entry


def open_trace(path: Path, wanted: str = "") -> Trace:
    """Return the trace of a file.

    Args:
        path: a plain or gzip file.
        wanted: the name of a form, or the start of a name: for `azure`, the file's content decides between 2023 and
            2024. Empty: the content decides among all forms.

    Raises:
        Invalid: no form has that name.
        Unreadable: the file cannot be read, is empty or has no known form.
    """
    names = [wanted] if wanted in NAMES else [name for name in NAMES if name.startswith(wanted)]
    if not names:
        raise Invalid(f"the format {wanted!r} is unknown: choose one of {', '.join(sorted(NAMES))}")
    head = next(pieces(path, _HEAD_BYTES), "").lstrip()
    if not head:
        raise Unreadable(f"{path} is empty: give a file with jobs or requests")
    if PHILLY in names and (head.startswith("[") or names == [PHILLY]):
        return Trace(path, PHILLY, "jobs", None)
    lines = [line for line in head.splitlines()[:_HEAD_LINES] if line.strip()]
    form = _form(lines, [form for form in FORMS if form.name in names])
    if form is None:
        raise Unreadable(
            f"{path} has the form of no trace that is known; its first line is {shown(lines[0])}: "
            f"name the form with --format ({', '.join(sorted(NAMES))}), or check the file"
        )
    return Trace(path, form.name, form.kind, form)


def _form(lines: list[str], forms: list[Columns]) -> Columns | None:
    """Return the form of a file's first lines: the form with this header, else the first form that most lines fit."""
    headed = [form for form in forms if form.is_header(lines[0])]
    for form in headed:
        if len(lines) > 1 and form.first_cell(form.cells(lines[1])[0]):
            return form
    if headed:
        return headed[-1]
    counted = [(sum(columns.fits(form, line) for line in lines), form) for form in forms if not form.header]
    most = max((count for count, _ in counted), default=0)
    if most:
        return next(form for count, form in counted if count == most)
    return forms[0] if len(forms) == 1 else None
