"""Files of raw data: JSON that records the command, the time and the machine of a measurement."""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from orion.atomic_files import replace_file


def header(experiment: str) -> dict[str, Any]:
    """Return the first fields of every file of raw data.

    Args:
        experiment: Full name of the module that measures, such as orion.bench.threads_cost.
    """
    return {
        "experiment": experiment.rpartition(".")[2],
        "command": " ".join([f"python -m {experiment}", *sys.argv[1:]]),
        "began": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "machine": describe_machine(),
    }


def write(path: Path | None, raw: dict[str, Any]) -> None:
    """Write a file atomically, if there is a path; compress it if its name ends with .gz."""
    if path is None:
        return
    data = json.dumps(raw).encode() + b"\n"
    replace_file(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data, alone=True)


def read(path: Path) -> dict[str, Any]:
    """Read a file that `write` wrote."""
    data = path.read_bytes()
    raw: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return raw


def rounded(seconds: list[float]) -> list[float]:
    """Round to a microsecond: Python's times are not more exact, and the file becomes half as large."""
    return [round(second, 6) for second in seconds]


def describe_machine() -> str:
    """Return the GPU's name, driver version and memory, from nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "no NVIDIA GPU"
    return done.stdout.strip() or "no NVIDIA GPU"
