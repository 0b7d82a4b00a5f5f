"""What a process has cost so far, as /proc says."""

import os
from collections.abc import Iterable
from pathlib import Path


def cpu_seconds(process_id: int) -> float:
    """Return the CPU time of all threads, also of those that have ended. It misses runs shorter than a tick."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds_of(threads: Iterable[Path]) -> float:
    """Return the CPU time of threads (/proc/PID/task/TID), with their shortest runs."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def memory_kib(process_id: int, figure: str) -> int:
    """Return a figure of the process's memory, such as VmRSS (resident now) or VmHWM (resident at the peak)."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition(f"\n{figure}:")[2].split()[0])
