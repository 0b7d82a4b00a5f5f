"""Shows on a terminal how far a simulation is, with the time left."""

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from orion.simulation.cluster.runs import Task, made


class Display:
    """A context manager that shows a progress bar on standard error. It shows nothing if that is not a terminal."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bars = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:.0f} %"),
            TimeRemainingColumn(), TextColumn("left"),
            console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True, refresh_per_second=4,
        )  # fmt: skip
        self._done = sum(len(task.source.jobs) for task in tasks if made(task) is not None)
        total = sum(len(task.source.jobs) for task in tasks)
        self._bar = self._bars.add_task("simulating", total=max(1, total), completed=self._done)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def begun(self, task: Task) -> Callable[[int], None]:
        """Show a run that this process makes; return a function that takes the run's number of finished jobs."""
        self._bars.update(self._bar, description=str(task.scheduler))
        if self._bars.disable:
            return lambda finished: None
        return lambda finished: self._bars.update(self._bar, completed=self._done + finished)

    def ended(self, task: Task) -> None:
        """Show that a run has ended."""
        self._done += len(task.source.jobs)
        self._bars.update(self._bar, completed=self._done)
