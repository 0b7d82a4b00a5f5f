"""Reads hardware counters: runs the program a second time, under Nsight Compute.

This needs a separate run, because ncu repeats each kernel to read all counters, so durations under ncu are useless. A
failure here does not fail the command: without ncu, without the rights, or with an unusable report, the classes of
kernels stay `unknown`.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from orion.cli.profiling import nsight_compute
from orion.errors import Unreadable

_NO_RIGHT = "ERR_NVGPUCTRPERM"
_OPTIONS = ("--csv", "--page", "raw", "--set", "roofline", "--section", "ComputeWorkloadAnalysis")
_PROCESSES = ("--target-processes", "all")


def read_counters(command: Sequence[str], folder: Path) -> "nsight_compute.Report | str":
    """Run a program under Nsight Compute and return the classes of its kernels, or a sentence that says why not.

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
        output = report.read_text(errors="replace") if report.exists() else ""
    except OSError as error:
        return f"{ncu} cannot be run: {error.strerror}"
    if _NO_RIGHT in output:
        return "this user may not read them (root may, or all with the driver's NVreg_RestrictProfilingToAdminUsers=0)"
    try:
        return nsight_compute.read_report(report)
    except Unreadable as error:
        return f"ncu ended with status {done.returncode}: {error}"
