"""Hardware counters, where this user may read them: a second run of the program, under Nsight Compute.

A run of its own, since ncu repeats each kernel to read its counters in turn: durations taken under it are worthless. It
is no reason to fail: without ncu, without the right, or with a report that says nothing, kernels stay `unknown`.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from orion.cli.errors import Refused
from orion.cli.profiling import nsight_compute

_NO_RIGHT = "ERR_NVGPUCTRPERM"
_OPTIONS = ("--csv", "--page", "raw", "--set", "roofline", "--section", "ComputeWorkloadAnalysis")
_PROCESSES = ("--target-processes", "all")


def read_counters(command: Sequence[str], folder: Path) -> "nsight_compute.Report | str":
    """Run a program under Nsight Compute and return the classes of its kernels, or a sentence on why there are none.

    Args:
        command: the program and its arguments.
        folder: for ncu's report.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        return "ncu (Nsight Compute) is not on the PATH"
    report = folder / "ncu.csv"
    try:
        done = subprocess.run([ncu, *_PROCESSES, *_OPTIONS, "--log-file", str(report), *command])
        said = report.read_text(errors="replace") if report.exists() else ""
    except OSError as error:
        return f"{ncu} cannot be run: {error.strerror}"
    if _NO_RIGHT in said:
        return "this user may not read them (root may, or all with the driver's NVreg_RestrictProfilingToAdminUsers=0)"
    try:
        return nsight_compute.read_report(report)
    except Refused as refusal:
        return f"ncu ended with status {done.returncode}: {refusal}"
