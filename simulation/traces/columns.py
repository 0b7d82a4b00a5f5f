"""The forms that are columns of text: one line is one job or one request.

Each form makes a new `Row` function for each file, because some forms need earlier lines: KubeShare gives the time
since the last job, and Azure's times count from the first request. A `Row` function raises a ValueError if the line
breaks the form. It returns `Skipped` if the form's rule leaves the line out.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .entries import Entry, Skipped
from .entries import JobEntry as Job
from .entries import RequestEntry as Request
from .numbers import instant_ns, number, whole
from .text import numbered

Row = Callable[[int, Sequence[str]], Entry | Skipped]


@dataclass(frozen=True)
class Columns:
    """One form of a trace.

    Attributes:
        name: the value of `--format`.
        kind: jobs or requests.
        row: makes the function that reads a line from its number and its cells.
        header: the names of the columns; empty if the form has no header. The first lines then show the form.
        width: the number of columns.
        separator: the character between cells; None: any white space.
        first_cell: whether the first cell of a line fits this form. It distinguishes forms with the same header.
    """

    name: str
    kind: str
    row: Callable[[], Row]
    header: tuple[str, ...] = ()
    width: int = 0
    separator: str | None = ","
    first_cell: Callable[[str], bool] = lambda cell: True

    def cells(self, text: str) -> list[str]:
        """Return a line's cells without white space and quotation marks."""
        if '"' in text and self.separator:
            try:
                return [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True))]
            except csv.Error:  # a cell is too long; the error about a number reports this line later
                pass
        return [cell.strip() for cell in text.split(self.separator)]

    def is_header(self, text: str) -> bool:
        """Return whether a line is this form's header."""
        return bool(self.header) and tuple(cell.lower() for cell in self.cells(text)) == self.header

    def count(self, cells: Sequence[str]) -> None:
        """Check the number of cells.

        Raises:
            ValueError: with the reason.
        """
        wanted = len(self.header) or self.width
        if len(cells) != wanted:
            raise ValueError(f"the line has {len(cells)} column{'s' * (len(cells) != 1)} in place of {wanted}")


def _synergy() -> Row:
    def row(line: int, cells: Sequence[str]) -> Entry:
        name, model, arrival, iterations, gpus = cells
        if not model:
            raise ValueError("the model is empty")
        return Job(
            line=line,
            name=str(whole(name, "job_id")),
            arrival_s=number(arrival, "arrival_s"),
            gpus=whole(gpus, "gpu_demand", least=1),
            model=model,
            iterations=whole(iterations, "total_iterations", least=1),
        )

    return row


def _kubeshare(unit_s: float) -> Callable[[], Row]:
    def start() -> Row:
        now_s, jobs = 0.0, 0

        def row(line: int, cells: Sequence[str]) -> Entry:
            nonlocal now_s, jobs
            now_s += number(cells[0], "the inter-arrival time")  # counts even if the rest of the line is bad
            gpus, duration = whole(cells[1], "the number of GPUs", least=1), number(cells[2], "the duration")
            jobs += 1
            return Job(line, str(jobs - 1), now_s, gpus, duration * unit_s)

        return row

    return start


def _alibaba() -> Row:
    def row(line: int, cells: Sequence[str]) -> Entry | Skipped:
        name, _, _, gpus, milli, _, quality, _, creation, deletion, scheduled = cells
        if not name:
            raise ValueError("the name is empty")
        count = whole(gpus or "0", "num_gpu")
        if count == 0:
            return Skipped(line, "the pod asks for no GPU", is_bad=False)
        share = whole(milli, "gpu_milli") if count == 1 and milli else 1000
        if not 1 <= share <= 1000:
            raise ValueError(f"gpu_milli is {share}, and must be from 1 to 1000 where num_gpu is 1")
        arrival_s = number(creation, "creation_time")
        if not scheduled:
            return Skipped(line, "the pod was never scheduled", is_bad=False)
        if not deletion:
            return Skipped(line, "the pod was not deleted before the trace ended", is_bad=False)
        duration_s = number(deletion, "deletion_time") - number(scheduled, "scheduled_time")
        if duration_s < 0:
            raise ValueError(f"the pod is deleted {-duration_s:g} s before it is scheduled")
        return Job(line, name, arrival_s, count if share == 1000 else share / 1000, duration_s, quality=quality)

    return row


def _azure() -> Row:
    first_ns: int | None = None

    def row(line: int, cells: Sequence[str]) -> Entry:
        nonlocal first_ns
        now_ns = instant_ns(cells[0])
        prompt, output = whole(cells[1], "ContextTokens"), whole(cells[2], "GeneratedTokens")
        first_ns = now_ns if first_ns is None else first_ns
        return Request(line, (now_ns - first_ns) / 1e9, prompt, output)

    return row


def _burstgpt(model: int) -> Callable[[], Row]:
    def start() -> Row:
        def row(line: int, cells: Sequence[str]) -> Entry | Skipped:
            arrival_s = number(cells[0], "Timestamp")
            prompt = whole(cells[model + 1], "Request tokens")
            output = whole(cells[model + 2], "Response tokens")
            if not output:
                return Skipped(line, "the request has no response (0 response tokens)", is_bad=False)
            return Request(line, arrival_s, prompt, output, cells[model])

        return row

    return start


def _has_offset(cell: str) -> bool:
    return cell.endswith("Z") or cell[-6:-5] in ("+", "-") or cell[-5:-4] == "+"


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.lower().split(","))


_AZURE = _names("TIMESTAMP,ContextTokens,GeneratedTokens")
_BURST_1 = _names("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type")
_BURST_2 = _names("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type")
_ALIBABA = _names(
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
)

FORMS = (
    Columns("alibaba-gpu-2023", "jobs", _alibaba, _ALIBABA),
    Columns("azure-llm-2024", "requests", _azure, _AZURE, first_cell=_has_offset),
    Columns("azure-llm-2023", "requests", _azure, _AZURE),
    Columns("burstgpt-1", "requests", _burstgpt(model=1), _BURST_1),
    Columns("burstgpt-2", "requests", _burstgpt(model=3), _BURST_2),
    Columns("synergy", "jobs", _synergy, width=5),
    Columns("kubeshare", "jobs", _kubeshare(60.0), width=3, separator=None),
    Columns("kubeshare-seconds", "jobs", _kubeshare(1.0), width=3, separator=None),
)
""" In the order in which content is compared with them. `kubeshare-seconds` looks like `kubeshare`: name it. """


def fits(form: Columns, text: str) -> bool:
    """Return whether a line fits a form that has no header."""
    cells = form.cells(text)
    try:
        form.count(cells)
        form.row()(1, cells)
    except ValueError:
        return False
    return True


def entries(form: Columns, path: Path) -> Iterator[Entry | Skipped]:
    """Yield the jobs or requests of a file.

    Raises:
        Unreadable: the file cannot be read.
    """
    row, is_first = form.row(), True
    for line, text in numbered(path):
        if is_first and form.is_header(text):
            is_first = False
            continue
        is_first = False
        try:
            cells = form.cells(text)
            form.count(cells)
            yield row(line, cells)
        except ValueError as error:
            yield Skipped(line, str(error), is_bad=True)
