"""Profile files of the published Orion (EuroSys'24): `Name,Profile,Memory_footprint,SM_usage,Duration`.

Each row is one launch, in launch order. Profile is 1 (compute), 0 (memory) or -1 (unknown). Duration is in nanoseconds.
Files of kernel_intercept have the same header, but microseconds. SM_usage may exceed the number of SMs. The
published Orion splits rows at every comma and has no quotes, so this module writes short names without commas. When it
reads a row, the last four cells are the values and the rest is the name.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orion.cli.profiling.building import object_name
from orion.cli.profiling.collected import Collected
from orion.cli.profiling.names import base_name
from orion.cli.profiling.units import Unit
from orion.crds.metadata import Metadata
from orion.crds.profile import GPU, Duration, GPUProfile, Kernel, KernelClass, ProfileSpec, Source
from orion.errors import Conflict, Unreadable

HEADER = "Name,Profile,Memory_footprint,SM_usage,Duration"
_PROFILES = {KernelClass.COMPUTE: 1, KernelClass.MEMORY: 0, KernelClass.UNKNOWN: -1}
_CLASSES = {number: kernel_class for kernel_class, number in _PROFILES.items()}
_TOO_SHORT_NS = 500
""" Every kernel takes longer than this; a file with a lower median has another unit. """
_TOO_LONG_NS = 20_000_000
""" Nearly every program's median kernel is shorter than this. """


@dataclass(frozen=True)
class Row:
    """One row; the duration is in nanoseconds."""

    name: str
    kernel_class: KernelClass
    sms: int
    duration_ns: float


def _row_text(row: Row) -> str:
    name = "".join(letter if letter.isprintable() else " " for letter in row.name.replace(",", ";")).strip()
    return f"{name},{_PROFILES[row.kernel_class]},0,{row.sms},{row.duration_ns:.0f}"


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Write a file for the published Orion and return its number of rows.

    Raises:
        Conflict: the file cannot be written.
    """
    texts = [_row_text(row) for row in rows]
    try:
        path.write_text("\n".join([HEADER, *texts, ""]), encoding="utf-8", errors="replace")
    except OSError as error:
        raise Conflict(f"{path} cannot be written: {error.strerror}") from error
    return len(texts)


def _kernel_row(kernel: Kernel, duration_ns: float) -> Row:
    return Row(base_name(kernel.name), kernel.kernel_class, kernel.sms_needed_uncapped or 0, duration_ns)


def kernel_rows(profile: GPUProfile) -> list[Row]:
    """Return one row per kernel, with the median duration."""
    return [_kernel_row(kernel, kernel.duration_ns.median) for kernel in profile.spec.kernels]


def launch_rows(profile: GPUProfile, collected: Collected) -> list[Row]:
    """Return one row per launch, by process and in launch order; `collected` bounds the number of launches."""
    kernels = {
        (kernel.mangled_name, kernel.grid, kernel.block, kernel.shared_memory.dynamic): kernel
        for kernel in profile.spec.kernels
        if kernel.shared_memory is not None
    }
    return [
        _kernel_row(kernels[launch.key], launch.duration_ns) for launch in collected.launches if launch.key in kernels
    ]


def read_rows(path: Path, unit: Unit) -> list[Row]:
    """Return the rows of a file of the published Orion.

    Raises:
        Unreadable: the file is unreadable, or a row is invalid.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from error
    if not lines or [cell.strip() for cell in lines[0].split(",")] != HEADER.split(","):
        raise Unreadable(f"{path}:1: expected {HEADER}, found {lines[0] if lines else 'nothing'!r}")
    rows = [_read_row(line, path, number, unit) for number, line in enumerate(lines[1:], start=2) if line.strip()]
    if not rows:
        raise Unreadable(f"{path}:2: expected a row such as Conv,1,0,98,100480, found nothing")
    return rows


def _read_row(line: str, path: Path, number: int, unit: Unit) -> Row:
    where = f"{path}:{number}"
    cells = line.rsplit(",", 4)
    if len(cells) != 5:
        raise Unreadable(f"{where}: expected five cells, {HEADER}, found {line!r}")
    name, profile, _, sms, duration = (cell.strip() for cell in cells)
    if profile not in ("1", "0", "-1"):
        raise Unreadable(f"{where}: expected a Profile of 1, 0 or -1, found {profile!r}")
    if not sms.isdecimal():
        raise Unreadable(f"{where}: expected an SM_usage of 0 or more, found {sms!r}")
    try:
        nanoseconds = float(duration) * unit.nanoseconds
    except ValueError:
        nanoseconds = -1.0
    if not 0 <= nanoseconds < 1e15:
        raise Unreadable(f"{where}: expected a Duration of 0 or more, found {duration!r}")
    return Row(name, _CLASSES[int(profile)], int(sms), nanoseconds)


def to_profile(rows: list[Row], name: str, sms: int | None) -> GPUProfile:
    """Return the profile of the rows: rows with the same name, class and SM_usage are one kernel.

    Args:
        rows: at least one.
        name: the object's.
        sms: the number of SMs of the measured GPU; None: unknown.
    """
    groups: dict[tuple[str, KernelClass, int], list[float]] = {}
    for row in rows:
        groups.setdefault((row.name, row.kernel_class, row.sms), []).append(row.duration_ns)
    all_ns = sum(sum(durations) for durations in groups.values())
    kernels = [
        Kernel(
            name=kernel_name,
            launches=len(durations),
            duration_ns=Duration(median=statistics.median(durations), p95=_p95(durations)),
            total_share=round(sum(durations) / all_ns, 6) if all_ns else 0.0,
            sms_needed=(min(needed, sms) if sms else needed) or None,
            sms_needed_uncapped=needed or None,
            kernel_class=kernel_class,
        )
        for (kernel_name, kernel_class, needed), durations in sorted(groups.items(), key=lambda each: -sum(each[1]))
    ]
    source = Source(kind="orionCsv", processes=0, warnings=_doubts(rows))
    return GPUProfile(
        metadata=Metadata(name=object_name(name)),
        spec=ProfileSpec(gpu=GPU(sms=sms), source=source, kernels=kernels),
    )


def _p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.95))]


def _doubts(rows: list[Row]) -> list[str]:
    doubts = ["grids and blocks are not in such files, so the policy cannot recognise launches of these kernels"]
    typical = statistics.median(row.duration_ns for row in rows)
    if typical < _TOO_SHORT_NS:
        doubts.append(f"the median duration would be {typical:.0f} ns, shorter than any kernel: try --unit us")
    if typical > _TOO_LONG_NS:
        doubts.append(f"the median duration would be {typical / 1e6:.0f} ms, longer than most kernels: try --unit ns")
    return doubts
