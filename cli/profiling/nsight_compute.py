"""Reads the classes of kernels from a report of Nsight Compute, as `ncu --csv --page raw` prints it.

Hardware counters need rights, and profiling must work without them, so a user with these rights makes the report. The
class is compute if the SMs or their tensor cores reach 60 % of their peak, and memory if DRAM does; if both do, the
higher one decides. Otherwise the roofline decides, if the report has arithmetic and bytes: compute if the arithmetic,
tensor cores included, is nearer to its peak than the memory traffic is to its own. The published Orion's roofline
covers only FP32, so it misclassifies kernels that use tensor cores.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orion.cli.profiling.names import base_name, comparable
from orion.crds.profile import GPUProfile, Kernel, KernelClass
from orion.errors import Unreadable

BUSY = 60.0
""" A resource limits a kernel from this percentage of the resource's peak on. """

HOW = "ncu --csv --page raw --set roofline --section ComputeWorkloadAnalysis CMD > report.csv"

_DRAM = (
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
)
_SM = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)
_TENSOR = re.compile(r"sm__(?:inst_executed_pipe_tensor|pipe_tensor)\w*\.\w+\.pct_of_peak_sustained_(?:active|elapsed)")
_TENSOR_OPERATIONS = re.compile(r"(sm__ops_path_tensor_\w+)\.sum\.per_cycle_elapsed")
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "k": 1e3}


@dataclass(frozen=True)
class Measured:
    """The use of resources in per cent of their peaks; None: not in the report.

    Args:
        sm: the busiest part of the SMs.
        tensor: the tensor cores.
        dram: the device's memory.
        arithmetic: floating-point operations, including those of tensor cores.
    """

    sm: float | None
    tensor: float | None
    dram: float | None
    arithmetic: float | None

    @property
    def kernel_class(self) -> KernelClass:
        """The resource that limits the kernel."""
        compute = max(self.sm or 0.0, self.tensor or 0.0)
        memory = self.dram or 0.0
        if max(compute, memory) >= BUSY:
            return KernelClass.COMPUTE if compute >= memory else KernelClass.MEMORY
        if self.arithmetic is None or self.dram is None or self.arithmetic == self.dram == 0:
            return KernelClass.UNKNOWN
        return KernelClass.COMPUTE if self.arithmetic >= self.dram else KernelClass.MEMORY


Report = Mapping[tuple[str, str, str], KernelClass]
""" Class by name (normalised; whole or base name), grid and block; see `_keys`. """


def read_report(path: Path) -> Report:
    """Return the classes of the kernels in a report.

    Raises:
        Unreadable: the file is unreadable or not such a report.
    """
    seen: dict[tuple[str, str, str], list[Measured]] = {}
    for name, grid, block, measured in _rows(path):
        for key in _keys(name, grid, block):
            seen.setdefault(key, []).append(measured)
    return {key: _together(measured).kernel_class for key, measured in seen.items()}


def _keys(name: str, grid: str, block: str) -> list[tuple[str, str, str]]:
    """Return the keys for a kernel, the most specific first; ncu prints whole names, or on request base names."""
    bare = base_name(name).rpartition("::")[2]
    return [(comparable(name), grid, block), (bare, grid, block), (comparable(name), "", ""), (bare, "", "")]


def _together(measured: list[Measured]) -> Measured:
    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    fields = Measured.__dataclass_fields__
    return Measured(**{field: mean([getattr(each, field) for each in measured]) for field in fields})


def _rows(path: Path) -> Iterator[tuple[str, str, str, Measured]]:
    """Yield name, grid, block and measures of each kernel of a report."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    # The output of the program and of ncu itself precedes the table.
    start = next(
        (number for number, line in enumerate(lines) if '"Kernel Name"' in line or ",Kernel Name," in line), None
    )
    if start is None:
        raise Unreadable(f"{path}:1: expected a table with a column Kernel Name, as made by `{HOW}`")
    table = csv.reader(lines[start:])
    header = next(table)
    if "Metric Name" in header:
        raise Unreadable(f"{path}:{start + 1}: expected one column a metric; make it with --page raw: `{HOW}`")
    if not any(column in header for column in (*_DRAM, *_SM)):
        raise Unreadable(f"{path}:{start + 1}: expected the column {_SM[0]}; make it by `{HOW}`")
    units: dict[str, str] = {}
    for number, cells in enumerate(table, start=start + 2):
        if not cells or cells[0].startswith("=="):
            continue
        if len(cells) != len(header):
            raise Unreadable(
                f"{path}:{number}: expected {len(header)} cells as in line {start + 1}, found {len(cells)}"
            )
        row = dict(zip(header, cells, strict=True))
        if not row["Kernel Name"]:
            units = row
            continue
        yield (
            row["Kernel Name"],
            _shape(row.get("Grid Size", "")),
            _shape(row.get("Block Size", "")),
            _measured(row, units),
        )


def _shape(text: str) -> str:
    return ",".join(re.findall(r"\d+", text))


def _number(row: Mapping[str, str], column: str) -> float | None:
    try:
        value = float(row[column].replace(",", ""))
    except (KeyError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _first(row: Mapping[str, str], columns: tuple[str, ...]) -> float | None:
    return next((value for column in columns if (value := _number(row, column)) is not None), None)


def _measured(row: Mapping[str, str], units: Mapping[str, str]) -> Measured:
    tensor = [value for column in row if _TENSOR.fullmatch(column) and (value := _number(row, column)) is not None]
    dram = _first(row, _DRAM)
    return Measured(
        sm=_first(row, _SM),
        tensor=max(tensor, default=None),
        dram=_dram_of_bytes(row, units) if dram is None else dram,
        arithmetic=_arithmetic(row, max(tensor, default=0.0)),
    )


def _arithmetic(row: Mapping[str, str], tensor: float) -> float | None:
    """Return the use of the busiest kind of floating-point arithmetic, in per cent of its peak."""
    shares = []
    for kind in "fdh":  # single, double, half
        rates = [_operations(row, f"{kind}{operation}") for operation in ("add", "mul", "fma")]
        peak = _number(row, f"sm__sass_thread_inst_executed_op_{kind}fma_pred_on.sum.peak_sustained")
        if peak and any(rate is not None for rate in rates):
            add, multiply, both = (rate or 0.0 for rate in rates)
            shares.append(100 * (add + multiply + 2 * both) / (2 * peak))
    for column in row:
        operations = _TENSOR_OPERATIONS.fullmatch(column)
        peak = _number(row, f"{operations[1]}.sum.peak_sustained") if operations else None
        if peak and (rate := _number(row, column)) is not None:
            shares.append(100 * rate / peak)
    return max(*shares, tensor) if shares else None


def _operations(row: Mapping[str, str], operation: str) -> float | None:
    """Return thread instructions per cycle, summed over all SMs."""
    name = f"sass_thread_inst_executed_op_{operation}_pred_on.sum.per_cycle_elapsed"
    return _first(row, (f"smsp__{name}", f"sm__{name}"))


def _dram_of_bytes(row: Mapping[str, str], units: Mapping[str, str]) -> float | None:
    names = ("dram__bytes.sum.per_second", "dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second")
    values = []
    for name in names:
        value = _number(row, name)
        if value is None:
            return None
        unit = re.match(r"([KMGTk]?)(?:byte|hz|Hz|$)", units.get(name, ""))
        values.append(value * (_PREFIXES[unit[1]] if unit else 1.0))
    rate, peak, cycles = values
    return 100 * rate / (peak * cycles) if peak * cycles > 0 else None


def classify(profile: GPUProfile, report: Report) -> tuple[GPUProfile, int]:
    """Return the profile with the classes of a report, and the number of kernels that are not in the report."""

    def known(kernel: Kernel) -> KernelClass | None:
        grid = ",".join(map(str, kernel.grid or ()))
        block = ",".join(map(str, kernel.block or ()))
        return next((report[key] for key in _keys(kernel.name, grid, block) if key in report), None)

    classes = [known(kernel) for kernel in profile.spec.kernels]
    kernels = [
        kernel if found is None else kernel.model_copy(update={"kernel_class": found})
        for kernel, found in zip(profile.spec.kernels, classes, strict=True)
    ]
    spec = profile.spec.model_copy(update={"kernels": kernels})
    return profile.model_copy(update={"spec": spec}), classes.count(None)
