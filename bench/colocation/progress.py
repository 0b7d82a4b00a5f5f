"""Shows a measurement's progress: one line for each run and, on a terminal, a bar with the time left.

Progress goes to standard error, results to standard output.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from orion.bench.colocation.gpus import Device
from orion.bench.colocation.plan import PlannedRun
from orion.bench.samples import completed_between, latencies_ms, percentile

OVERHEAD = 1.15  # factor on the expected time, assumed for starts of processes until enough runs are measured


def minutes(seconds: float) -> str:
    """Return a duration as text for people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    whole = round(seconds / 60)
    return f"{whole} min" if whole < 90 else f"{whole // 60} h {whole % 60} min"


def figures(run: dict[str, Any]) -> str:
    """Return the figures of one run as text."""
    if run["error"]:
        return "FAILED: " + " ".join(run["error"].split())
    begin, end = run["window"]
    words = []
    if run["arrivals"]:
        pairs = [(due, at) for due, at in zip(run["arrivals"], run["ends"], strict=True) if due >= begin]
        latencies = latencies_ms([due for due, _ in pairs], [at for _, at in pairs])
        words.append("hp " + ", ".join(f"p{rank} {percentile(latencies, rank):.2f} ms" for rank in (50, 99)))
    elif run["hp"]:
        words.append(f"hp {completed_between(run['ends'], begin, end) / (end - begin):.1f} steps/s")
    if run["be"]:
        rate = sum(completed_between(be["ends"], begin, end) * be["amount"] for be in run["be"]) / (end - begin)
        words.append(f"be {rate:.1f} {run['be'][0]['about'].get('unit', 'steps')}/s")
    return ", ".join(words)


class Display:
    """The `Watcher` that prints progress; a context manager."""

    def __init__(self, runs: list[PlannedRun], seconds: Callable[[PlannedRun], float], gpus: int) -> None:
        """Create the display.

        Args:
            runs: The runs to measure.
            seconds: Returns the expected duration of a run; it uses the measurements so far.
            gpus: Number of GPUs that share the runs.
        """
        self._console = Console(stderr=True)
        self._total = len(runs)
        self._seconds = seconds
        self._left, self._gpus = list(runs), gpus
        self._lock = threading.Lock()
        self._made = 0
        self._expected, self._began = 0.0, time.monotonic()
        self._bars = Progress(
            TextColumn("{task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}", markup=False),
            console=self._console, disable=not self._console.is_terminal, refresh_per_second=2, transient=True,
        )  # fmt: skip
        self._task = self._bars.add_task("starting", total=len(runs))

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begins(self, device: Device, run: PlannedRun) -> None:
        """Show the current run in the bar."""
        with self._lock:
            self._bars.update(self._task, description=f"{self._time_left()} left, now {run.system}")

    def ended(self, device: Device, run: PlannedRun, measured: dict[str, Any]) -> None:
        """Print a line with the run's figures."""
        with self._lock:
            self._made += 1
            self._expected += self._seconds(run)
            if run in self._left:
                self._left.remove(run)
            self._bars.update(self._task, completed=self._made, description=f"{self._time_left()} left")
            where = f" on GPU {device.index}" if self._gpus > 1 else ""
            outcome = figures({**measured, "error": (measured["error"] or "").removeprefix(f"{run}: ")})
            self.print_line(f"[{self._made}/{self._total}]{where} {run}: {outcome} ({self._time_left()} left)")

    def print_line(self, text: str) -> None:
        """Print a line with the time of day."""
        line = f"{time.strftime('%H:%M:%S')}  {text}"
        self._console.print(Text(line, style="red" if ": FAILED" in text else ""), soft_wrap=True)

    def _time_left(self) -> str:
        left = sum(map(self._seconds, self._left)) / self._gpus
        slower = OVERHEAD
        if self._expected > 20:
            slower = max(1.0, (time.monotonic() - self._began) * self._gpus / self._expected)
        return minutes(left * slower)
