"""Runs a job file in this process, one thread for each client: `python -m orion.bench.job_run FILE`, under the hook.

`orion launch` starts this module. Clients set up one after another, then all begin at the same time. Each client does
its iterations, but a be client ends as soon as every hp client has ended, since the GPU is no longer shared then.
Latency counts from the scheduled arrival; in a closed loop it counts from the end of the previous iteration.
"""

import json
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from orion.bench.commandline import OneSentenceParser
from orion.bench.job_file import DROPPED, Job, read_jobs
from orion.bench.samples import percentile
from orion.bench.workload import Place, Workload
from orion.bench.workloads import load, make
from orion.errors import OrionError
from orion.hook.policy_table import TABLE
from orion.inprocess import Figures, Scheduler

SWITCH_SECONDS = 50e-6  # how long a thread may hold Python's lock while another thread waits for the lock
PIPED_WIDTH = 140  # columns, if standard output is not a terminal


class ClientFailed(OrionError):
    """A client failed; the text names the client, and the cause is its exception."""


class _Thread(threading.Thread):
    """One client."""

    def __init__(self, index: int, job: Job, simulated: bool, scheduler: Scheduler, crew: "_Crew") -> None:
        super().__init__(name=f"client {index}", daemon=True)
        self._index, self.job = index, job
        self._kind, self._options = load(job.kind, job.options, simulated)
        self._scheduler, self._crew = scheduler, crew
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.ready = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Set up, wait for the common start, do the iterations."""
        try:
            with self._scheduler.client(self._index) as client:
                workload = make(self._kind, self._options, Place(one_of_several=True, stream=lambda: client.stream))
                self.ready.set()
                self._crew.begun.wait()
                if not self._crew.failed.is_set():
                    self._iterate(workload)
        except BaseException as error:
            self.error = error
            self._crew.failed.set()
        finally:
            self.ready.set()
            self._crew.ended(self.job)

    def _iterate(self, workload: Workload) -> None:
        clock, begin, arrivals = time.monotonic, self._crew.begin, self.job.arrivals
        with workload.throughout():
            for number in range(self.job.iterations):
                if self._crew.is_over(self.job):
                    break
                due = begin + arrivals[number] if arrivals else clock()
                time.sleep(max(0.0, due - clock()))
                workload.step()
                self.starts.append(due - begin)
                self.ends.append(clock() - begin)
        workload.finish()

    def figures(self, counts: Figures) -> dict[str, Any]:
        """Return the client's row of results, without its first iterations.

        Args:
            counts: The scheduler's counts for this client.
        """
        latencies = [1e3 * (end - start) for start, end in list(zip(self.starts, self.ends, strict=True))[DROPPED:]]
        span = self.ends[-1] - self.ends[DROPPED - 1] if len(self.ends) > DROPPED else 0.0
        row: dict[str, Any] = {"name": self.job.name, "role": self.job.role, "workload": self.job.kind}
        row |= {"iterations": len(latencies), "throughput": len(latencies) / span if span > 0 else None}
        for rank in (50, 95, 99):
            row[f"p{rank}_ms"] = percentile(latencies, rank) if latencies else None
        row |= {"launches": counts.launches, "gated_launches": counts.gated_launches}
        return row | {"overlapped_launches": counts.overlapped_launches, "gated_seconds": counts.gated_seconds}


class _Crew:
    """The state that all clients of a run share."""

    def __init__(self, jobs: list[Job]) -> None:
        self.begun, self.failed = threading.Event(), threading.Event()
        self.begin = 0.0
        self._hp_left = sum(job.role == "hp" for job in jobs)
        self._lock = threading.Lock()

    def ended(self, job: Job) -> None:
        with self._lock:
            self._hp_left -= job.role == "hp"

    def is_over(self, job: Job) -> bool:
        return self.failed.is_set() or (job.role == "be" and self._hp_left == 0)


def run_jobs(jobs: list[Job], policy: str, max_slowdown: float, simulated: bool) -> list[dict[str, Any]]:
    """Run all clients until they end.

    Returns:
        One row per client: name, role, workload, measured iterations, throughput (iterations a second), p50_ms, p95_ms,
        p99_ms (None without iterations), and the scheduler's counts.

    Raises:
        SchedulerError: The hook is not loaded, or rejects the settings.
        ClientFailed: A client failed.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    with Scheduler([job.role for job in jobs], policy, max_slowdown) as scheduler:
        crew = _Crew(jobs)
        threads = [_Thread(index, job, simulated, scheduler, crew) for index, job in enumerate(jobs)]
        for thread in threads:
            thread.start()
            thread.ready.wait()
        crew.begin = time.monotonic()
        crew.begun.set()
        for thread in threads:
            thread.join()
        for index, thread in enumerate(threads):
            if thread.error is not None:
                raise ClientFailed(_failure(index, thread.job, thread.error)) from thread.error
        return [thread.figures(counts) for thread, counts in zip(threads, scheduler.snapshot(), strict=True)]


def _failure(index: int, job: Job, error: BaseException) -> str:
    said = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"client {index}, {job.name} ({job.role}, {job.kind}), failed: {type(error).__name__}: {said}"


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "client", "role", "workload", "iterations", "a second", "p50 ms", "p95 ms", "p99 ms", "gated", "beside hp"
    )
    for number, row in enumerate(rows):
        measured = (row["throughput"], row["p50_ms"], row["p95_ms"], row["p99_ms"])
        cells = ["-" if value is None else f"{value:.2f}" for value in measured]
        counts = [str(row["gated_launches"]), str(row["overlapped_launches"])] if row["role"] == "be" else ["", ""]
        table.add_row(f"{number} {row['name']}", row["role"], row["workload"], str(row["iterations"]), *cells, *counts)
    return table


def main(arguments: list[str] | None = None) -> int:
    """Run a job file and print its results; return the exit status."""
    parser = OneSentenceParser(prog="orion launch", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--policy", choices=TABLE.names, default=TABLE.names[0])
    parser.add_argument("--max-slowdown", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        rows = run_jobs(read_jobs(options.file, options.seed), options.policy, options.max_slowdown, options.simulated)
    except KeyboardInterrupt:
        return 130
    except (OrionError, ValueError) as error:
        if isinstance(error, ClientFailed) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(f"orion: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"clients": rows}, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
