"""Reads the files that the profiler wrote, one per process, and merges them into one list of kernels.

hook/profiler/output.h describes the lines. A process may have been killed at any moment, so the reader accepts an
incomplete file; only a line that the profiler cannot have written is an error.
"""

import csv
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from orion.errors import Unreadable

Three = tuple[int, int, int]
Key = tuple[str, Three, Three, int]
""" Mangled name, grid, block, dynamic shared bytes. """


class ProcessLine(BaseModel):
    """A process of the program, at the time of its last write."""

    record: Literal["process"]
    version: Literal[1]
    pid: int
    command: str
    records: int
    dropped: int
    unplaced: int
    unplaced_ns: int
    ended: bool
    failure: str | None


class DeviceLine(BaseModel):
    """A GPU that the process used, with its index in that process."""

    record: Literal["device"]
    device: int
    model: str
    sms: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_per_sm: int
    reserved_shared_per_block: int
    warp: int
    major: int
    minor: int


class KernelLine(BaseModel):
    """A kernel at one launch shape; the histogram's rows are (from, to, launches), in nanoseconds."""

    record: Literal["kernel"]
    index: int
    name: str
    grid: Three
    block: Three
    static_shared: int
    dynamic_shared: int
    registers: int
    device: int
    launches: int
    timed: int
    total_ns: int
    shortest_ns: int
    longest_ns: int
    histogram: list[tuple[int, int, int]]

    @property
    def key(self) -> Key:
        """The kernel's identity in a profile."""
        return self.name, self.grid, self.block, self.dynamic_shared


_LINES: TypeAdapter[ProcessLine | DeviceLine | KernelLine] = TypeAdapter(
    Annotated[ProcessLine | DeviceLine | KernelLine, Field(discriminator="record")]
)


@dataclass
class CollectedKernel:
    """A kernel over all processes."""

    first: KernelLine
    device: DeviceLine | None
    launches: int = 0
    timed: int = 0
    total_ns: int = 0
    shortest_ns: int = 0
    longest_ns: int = 0
    histogram: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, line: KernelLine) -> None:
        """Add the counts of one process."""
        self.launches += line.launches
        if line.timed:
            self.shortest_ns = min(self.shortest_ns, line.shortest_ns) if self.timed else line.shortest_ns
            self.longest_ns = max(self.longest_ns, line.longest_ns)
        self.timed += line.timed
        self.total_ns += line.total_ns
        for begin, end, launches in line.histogram:
            self.histogram[begin, end] += launches

    def percentile(self, of_hundred: float) -> float:
        """Return a percentile of the launches' durations, with an error of about 2 %.

        Args:
            of_hundred: the percentage of launches that do not exceed the result.

        Returns:
            Nanoseconds; 0 if no launch was timed.
        """
        wanted, seen = self.timed * of_hundred / 100, 0
        for (begin, end), launches in sorted(self.histogram.items()):
            if seen + launches >= wanted:
                between = begin + (end - begin) * (wanted - seen) / launches
                return float(min(max(between, self.shortest_ns), self.longest_ns))
            seen += launches
        return float(self.longest_ns)


@dataclass(frozen=True)
class Launch:
    """One launch; `order` sorts the launches of all processes: by process, launch call, start."""

    order: tuple[int, int, int]
    key: Key
    duration_ns: int


@dataclass
class Collected:
    """The merged content of a folder."""

    processes: list[ProcessLine] = field(default_factory=list)
    devices: list[DeviceLine] = field(default_factory=list)
    kernels: dict[Key, CollectedKernel] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)


def read_folder(folder: Path) -> Collected:
    """Return the merged output of one program's processes.

    Args:
        folder: the folder that ORION_PROFILE_DIRECTORY named.

    Raises:
        Unreadable: a file in it is not from this version's profiler.
    """
    collected = Collected()
    for number, path in enumerate(sorted(folder.glob("process-*.jsonl"), key=_time)):
        _read_process(collected, path, number)
    collected.launches.sort(key=lambda launch: launch.order)
    return collected


def _time(path: Path) -> int:
    return int(path.stem.split("-")[2])


def _read_process(collected: Collected, path: Path, number: int) -> None:
    devices: dict[int, DeviceLine] = {}
    keys: dict[int, Key] = {}
    with path.open(errors="replace") as lines:
        for place, text in enumerate(lines, start=1):
            line = _parse(text, path, place)
            if isinstance(line, ProcessLine):
                collected.processes.append(line)
            elif isinstance(line, DeviceLine):
                devices[line.device] = line
                collected.devices.append(line)
            else:
                device = devices.get(line.device)
                kernel = collected.kernels.setdefault(line.key, CollectedKernel(line, device))
                kernel.add(line)
                keys[line.index] = line.key
    launches = path.with_name(path.name.replace("process-", "launches-")).with_suffix(".csv")
    if launches.exists():
        collected.launches += _read_launches(launches, number, keys)


def _parse(text: str, path: Path, place: int) -> ProcessLine | DeviceLine | KernelLine:
    try:
        return _LINES.validate_python(json.loads(text))
    except (ValidationError, ValueError) as error:
        raise Unreadable(f"{path}:{place}: expected a line of the profiler of this version: {error}") from None


def _read_launches(path: Path, number: int, keys: dict[int, Key]) -> list[Launch]:
    """Read the launches of kernels that are in the process's file; an incomplete last line is skipped."""
    launches = []
    with path.open() as lines:
        for row in csv.reader(line for line in lines if line.endswith("\n")):
            correlation, start, duration, index = (int(cell) for cell in row)
            if index in keys:
                launches.append(Launch((number, correlation, start), keys[index], duration))
    return launches
