"""The demo's three phases: the same requests alone, beside an unmanaged trainer, and beside the trainer under Orion."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from orion.bench.arrivals import picture_window, poisson_arrivals
from orion.bench.managed import ManagedGPU, machine
from orion.bench.samples import completed_between, latencies_ms
from orion.bench.workers.crew import Crew, Worker
from orion.bench.workload import Span
from orion.bench.workloads import Load

LEAD_SECONDS = 1.0  # warm-up of each phase, not measured: caches, clocks and learnt durations settle
PICTURE_SECONDS = 0.1  # length of the window that the picture shows
LOAD = 0.34  # hp's share of the GPU if no rate is given


@dataclass(frozen=True)
class Experiment:
    """The workloads, the GPU and the load."""

    simulated: bool
    hp: Load
    be: Load
    seconds: float
    rate: float | None
    """Requests a second; None: the rate that loads the GPU to LOAD."""
    seed: int


@dataclass
class Phase:
    """The results of one phase. Times are seconds from the start of its warm-up."""

    name: str
    latencies_ms: list[float]
    be_per_second: float = 0.0
    be_unit: str = ""
    hp_spans: list[Span] = field(default_factory=list)
    be_spans: list[Span] = field(default_factory=list)


@dataclass
class Outcome:
    """All phases, and the facts that a reader needs to judge them."""

    gpu: str
    simulated: bool
    rate: float
    arrivals: list[float]
    window: Span
    phases: list[Phase]


Progress = Callable[[str, float], None]
"""A function that gets the phase's name and the completed part of the phase, 0 to 1, many times a second."""


class _Run:
    """The workers of the three phases and the state that they share."""

    def __init__(self, experiment: Experiment, progress: Progress) -> None:
        self._experiment = experiment
        self._progress = progress
        self._phase, self._begin, self._end = "alone", float("inf"), float("inf")
        self._crew = Crew(self._tick)
        self._arrivals: list[float] = []
        self._window: Span = (0.0, 0.0)
        self._rate = 0.0
        self._gpu = ""
        self._timelines: Path | None = None

    def all_phases(self) -> Outcome:
        experiment = self._experiment
        with ExitStack() as stack:
            plain = stack.enter_context(machine(experiment.simulated))
            self._timelines = Path(plain["ORION_SIM_STATE"]) if experiment.simulated else None
            stack.enter_context(self._crew)
            hp = self._start("hp", experiment.hp, plain)
            self._prepare("alone", hp)
            self._draw_arrivals(hp)
            phases = [self._measure(hp, None)]
            self._phase = "unmanaged"
            be = self._start("be", experiment.be, plain)
            self._prepare("unmanaged", be)
            phases.append(self._measure(hp, be))
            self._crew.end([hp, be])
            self._phase = "orion"
            managed = stack.enter_context(ManagedGPU(plain, experiment.simulated))
            hp = self._start("hp", experiment.hp, managed.client_environment("hp"))
            be = self._start("be", experiment.be, managed.client_environment("be"))
            self._prepare("orion", hp, be)
            managed.wait_for_clients(2)
            phases.append(self._measure(hp, be))
            self._crew.end([hp, be])  # the workers end before the agent, which ends with the stack
        return Outcome(self._gpu, experiment.simulated, self._rate, self._counted(), self._window, phases)

    def _start(self, role: str, load: Load, environment: dict[str, str]) -> Worker:
        kind, options = load
        if self._timelines:  # the simulated GPU itself records when which process ran
            options = {**options, "timeline": str(self._timelines / f"{self._phase}.{role}")}
        return self._crew.start(f"{role} of phase {self._phase}", kind, options, environment)

    def _prepare(self, phase: str, *workers: Worker) -> None:
        self._phase, self._begin = phase, float("inf")
        self._crew.ready(*workers)

    def _draw_arrivals(self, hp: Worker) -> None:
        experiment, request_ms = self._experiment, hp.about["details"]["step_ms"]
        self._rate = experiment.rate or round(1e3 * LOAD / request_ms, 1)
        self._gpu = hp.about["gpu"]
        self._arrivals = poisson_arrivals(self._rate, LEAD_SECONDS + experiment.seconds, experiment.seed)
        self._window = picture_window(self._arrivals, PICTURE_SECONDS, LEAD_SECONDS)

    def _counted(self) -> list[float]:
        return [arrival for arrival in self._arrivals if arrival >= LEAD_SECONDS]

    def _measure(self, hp: Worker, be: Worker | None) -> Phase:
        """Run the requests, beside a training loop if `be` is given."""
        length = LEAD_SECONDS + self._experiment.seconds
        self._begin = time.monotonic() + 0.2
        self._end = self._begin + length
        hp.command(do="serve", begin=self._begin, arrivals=self._arrivals, trace=self._window)
        workers = [hp]
        if be is not None:
            be.command(do="loop", begin=self._begin, end=self._end + 0.1, trace=self._window)
            workers.append(be)
        served, *looped = self._crew.gather(*workers, seconds=3 * length + 30)
        skipped = len(self._arrivals) - len(self._counted())
        phase = Phase(self._phase, latencies_ms(self._arrivals, served["ends"])[skipped:], hp_spans=served["spans"])
        if be is not None:
            steps = completed_between(looped[0]["ends"], LEAD_SECONDS, length)
            phase.be_per_second = steps * be.about["amount"] / self._experiment.seconds
            phase.be_unit, phase.be_spans = be.about["unit"], looped[0]["spans"]
        self._progress(self._phase, 1.0)
        return phase

    def _tick(self) -> None:
        done = (time.monotonic() - self._begin) / (self._end - self._begin) if self._begin < float("inf") else 0.0
        self._progress(self._phase, min(max(done, 0.0), 1.0))


def run_phases(experiment: Experiment, progress: Progress) -> Outcome:
    """Run all three phases. No process and no file remains, even after an error.

    Raises:
        Unavailable: A worker or the agent failed; the text has its standard error.
    """
    return _Run(experiment, progress).all_phases()
