"""Distributes the runs of a plan over GPUs. Each GPU has a thread that takes rounds of hp workloads from a shared list.

The main thread only waits, and receives Ctrl-C; the GPUs' threads then end at their next tick.
"""

import math
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orion.bench.colocation import mps
from orion.bench.colocation.gpus import Device
from orion.bench.colocation.host import Host
from orion.bench.colocation.plan import PAIRED, Plan, PlannedRun, Unit
from orion.bench.colocation.progress import Display
from orion.bench.colocation.results import Results
from orion.bench.colocation.runner import LOOP_LEAD, PAUSE, TAIL, Runner
from orion.bench.colocation.scenario import Scenario
from orion.bench.colocation.schedule import expected_seconds
from orion.bench.colocation.systems import needs_mps
from orion.bench.colocation.work_list import START_SECONDS, WorkList
from orion.bench.colocation.work_list import expected_seconds as expected_for_gpus
from orion.bench.samples import completed_between
from orion.bench.workloads import check
from orion.bench.workloads import load as resolve

JOIN_SECONDS = 0.2


class Stopped(Exception):
    """Ends a GPU's thread, because the measurement has to end. It is not an error."""


@dataclass
class Outcome:
    """The outcome of a measurement."""

    output: Path
    made: int = 0
    reused: int = 0
    left: int = 0
    """Number of runs that were not started, because they would not have ended in time."""
    failed: dict[str, str] = field(default_factory=dict)
    """Errors, as sentences, by the run's file."""


class Measurement:
    """All runs of a plan, spread over GPUs."""

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan,
        results: Results,
        devices: list[Device],
        simulated: bool,
        stop_after: float = math.inf,
    ) -> None:
        """Store the settings; `run` measures, and starts no run that would end later than `stop_after` seconds."""
        self.results = results
        self._scenario = scenario
        self._plan = plan
        self._simulated = simulated
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._steps: dict[str, float] = {}
        self._outcome = Outcome(results.folder)
        self._claimed: set[str] = set()
        self.missing = self._missing()
        self._wanted = {run.path for run in self.missing}
        self._work_list = WorkList(plan.units, self._unit_seconds)
        self._stop_after, self._deadline = stop_after, math.inf
        self._devices = devices[: max(1, len(plan.units))]
        self._host = Host(self._tick)
        self._unfinished = set(self._devices)
        self._broken: list[BaseException] = []
        self._display: Display

    def run(self) -> Outcome:
        """Measure the missing runs. An exception is raised after everything that was started has ended.

        Raises:
            Invalid: The folder cannot be written.
            KeyboardInterrupt: The user interrupted the measurement.
            runner.FAILURES: A failure that affects all runs, such as a full disk.
        """
        self.results.open(self._scenario, self._devices, self._simulated)
        self._deadline = time.monotonic() + self._stop_after
        with Display(self.missing, self.seconds, len(self._devices)) as self._display:
            self._print_first_lines()
            ends = {device: threading.Event() for device in self._devices}
            for device, end in ends.items():
                threading.Thread(target=self._work, args=(device, end)).start()
            # The wait uses events: if Ctrl-C interrupts a join, Python 3.11 considers the thread ended.
            try:
                for end in ends.values():
                    while not end.wait(0.2):
                        pass
            finally:  # after Ctrl-C too
                self._stop.set()
                for end in ends.values():
                    end.wait()
        if self._broken:
            raise self._broken[0]
        self._outcome.left = len(self.missing) - self._outcome.made
        return self._outcome

    def seconds(self, run: PlannedRun) -> float:
        """Return the expected duration of a run, in seconds."""
        overhead = PAUSE + TAIL + JOIN_SECONDS
        if run.closed:
            return overhead + LOOP_LEAD + self._scenario.closed_loop_seconds
        if run.kind == "be-alone":
            return overhead + LOOP_LEAD + self._scenario.be_alone_seconds
        step = self._step(run)
        return overhead + expected_seconds(run.experiment.arrivals, run.requests, self._scenario.lead_seconds, step)

    def expected_seconds(self, gpus: int) -> float:
        """Return the expected duration of all missing runs on `gpus` GPUs, in seconds."""
        return expected_for_gpus(self._plan.units, self._unit_seconds, self._longest, gpus)

    def _unit_seconds(self, unit: Unit) -> float:
        return sum(self.seconds(run) for run in unit.runs if run.path in self._wanted)

    def _longest(self, unit: Unit) -> float:
        return max((self.seconds(run) for run in unit.runs if run.path in self._wanted), default=0.0)

    def begins(self, device: Device, run: PlannedRun) -> None:
        """Pass the notification to the display; see `Watcher`."""
        self._display.begins(device, run)

    def ended(self, device: Device, run: PlannedRun, measured: dict[str, Any]) -> None:
        """Record the outcome; see `Watcher`."""
        with self._lock:
            self._outcome.made += 1
            if measured["error"]:
                self._outcome.failed[run.path] = measured["error"]
        self._display.ended(device, run, measured)

    def _missing(self) -> list[PlannedRun]:
        """Return the runs whose files are missing. Of several runs that share a file, return only one."""
        every: dict[str, PlannedRun] = {}
        for planned in (each for unit in self._plan.units for each in unit.runs):
            every.setdefault(planned.path, planned)
        missing = [planned for path, planned in every.items() if self.results.read(path) is None]
        self._outcome.reused = len(every) - len(missing)
        return missing

    def _claim(self, run: PlannedRun) -> bool:
        with self._lock:
            if run.path in self._claimed or self.results.read(run.path) is not None:
                return False
            self._claimed.add(run.path)
            return True

    def _work(self, device: Device, end: threading.Event) -> None:
        """Run the thread of one GPU."""
        try:
            with Runner(device, self._scenario, self.results, self._simulated, self._host, self._tick, self) as runner:
                while (unit := self._work_list.take(device.index)) is not None:
                    if self._worth_starting(unit) or not runner.lacks(unit.runs):
                        runner.measure(self._in_order(unit), self._claim, self._in_time, lambda: self._ahead(device))
                self._wait_for_others(device)
        except Stopped:
            pass
        except BaseException as error:  # a bug, or a failure that affects all runs: the main thread raises it
            self._broken.append(error)
            self._stop.set()
        finally:
            end.set()

    def _worth_starting(self, unit: Unit) -> bool:
        """Return whether there is time to start processes and to measure one pair with its references.

        A start of processes idles all GPUs, so it must lead to at least one complete figure.
        """
        runs = [run for run in unit.runs if run.path in self._wanted]
        references = sum(self.seconds(run) for run in runs if run.kind not in PAIRED)
        longest = max((self.seconds(run) for run in runs if run.kind in PAIRED), default=0.0)
        return time.monotonic() + START_SECONDS + references + longest <= self._deadline

    def _in_order(self, unit: Unit) -> Unit:
        """Order a unit for which there is too little time by the experiments' priorities.

        References come before the runs that need them, because a run without references does not count.
        """
        if time.monotonic() + START_SECONDS + self._unit_seconds(unit) <= self._deadline:
            return unit
        return replace(unit, runs=tuple(sorted(unit.runs, key=_urgency)))

    def _ahead(self, device: Device) -> list[PlannedRun]:
        """Return the runs that a GPU will measure next, as far as there is time for them."""
        unit = self._work_list.reserve(device.index)
        runs = unit.runs if unit is not None else ()
        return [run for run in runs if run.path in self._wanted and self._in_time(run, False)]

    def _wait_for_others(self, device: Device) -> None:
        """Keep this GPU's processes until no run is in progress on any GPU: the end of a process disturbs runs."""
        with self._lock:
            self._unfinished.discard(device)
        while self._unfinished:
            self._tick()
            time.sleep(JOIN_SECONDS)

    def _in_time(self, run: PlannedRun, starting: bool) -> bool:
        return time.monotonic() + self.seconds(run) + START_SECONDS * starting <= self._deadline

    def _tick(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _step(self, run: PlannedRun) -> float:
        """Return the seconds of one request, from hp's closed loop; until the loop has run, those of the stand-in."""
        if run.hp_id not in self._steps:
            first = self.results.read(f"runs/{run.hp_id}/{run.round}/hp-closed-loop.json.gz")
            if first is None:
                _, simulated = resolve(run.experiment.hp.workload, run.experiment.hp.options, simulated=True)
                options = check("simulated-inference", simulated).model_dump()
                return float(options["kernel_us"] * options["kernels"] / 1e6 + options["stall_ms"] / 1e3)
            begin, end = first["window"]
            self._steps[run.hp_id] = (end - begin) / max(completed_between(first["ends"], begin, end), 1e-3)
        return self._steps[run.hp_id]

    def _print_first_lines(self) -> None:
        reused = f"; {self._outcome.reused} were measured before" if self._outcome.reused else ""
        self._display.print_line(f"{len(self.missing)} runs into {self.results.folder}{reused}")
        lacking = mps.missing()
        if lacking and not self._simulated and any(needs_mps(planned.spec) for planned in self.missing):
            self._display.print_line(f"{lacking}: the runs that need MPS will fail, the others continue")


def _urgency(run: PlannedRun) -> tuple[float, bool]:
    priority = run.experiment.priority if run.entry else math.inf  # a run of hp alone counts for all experiments
    return -priority, run.kind in PAIRED
