"""The results of an analysis: the content of summary.json, and the input of tables, plots and targets.

A figure that was not measured is None, never a placeholder number. "alone" is the run of hp alone in the same round.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from orion.bench.colocation.run_files import SystemSpec
from orion.bench.estimates import Estimate

Status = Literal["met", "missed", "incomplete", "not measured"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Figure(_Model):
    """A median over rounds with its 95 % bootstrap interval, and the value of each round."""

    median: float
    low: float
    high: float
    rounds: list[float]

    @classmethod
    def of(cls, estimate: Estimate) -> "Figure":
        """Convert an estimate."""
        return cls(median=estimate.value, low=estimate.low, high=estimate.high, rounds=list(estimate.rounds))


class Client(_Model):
    """One process: its name, its workload, and what the workload reported about itself (`facts`)."""

    id: str
    workload: str
    options: dict[str, Any]
    facts: dict[str, Any]
    gpu: str | None


class ClientShare(_Model):
    """How much of the GPU one of several be clients got; lists have one value for each round."""

    id: str
    request: float
    """The part of the GPU's time that its slot requests; 0: none."""
    gpu_time: list[float]
    """The client's share of the GPU's time: its throughput divided by that of the same workload alone."""
    part: list[float]
    """The client's GPU time divided by that of all be clients together."""
    fair: float
    """The part that the client should have: its request by the sum of the requests; without requests, an equal part."""


class Hiccups(_Model):
    """Single requests, in any round, that took far longer than the others; figures include them."""

    number: int = 0
    longest_ms: float | None = None
    disturbed: int = 0
    """Runs during which a process of another GPU of the host started or ended."""

    @property
    def words(self) -> str:
        """Return a short text; empty if there was no hiccup."""
        hiccups = f"{self.number} (longest {self.longest_ms:.0f} ms)" if self.number else ""
        disturbed = f"{self.disturbed} runs disturbed" if self.disturbed else ""
        return ", ".join(filter(None, [hiccups, disturbed]))


class SystemFigures(_Model):
    """The figures of one system for one pair; lists have one value for each round, in the order of `rounds`."""

    system: str
    spec: SystemSpec
    rounds: list[int]
    requests: int
    """Measured requests (closed loop: iterations) in the round with the fewest."""
    latency_ms: dict[str, list[float]]
    """p50, p95, p99 of the time from scheduled arrival to end; in a closed loop, of the iteration times."""
    latency: dict[str, Figure]
    """The same percentiles, divided by those of alone."""
    iteration: Figure | None
    """Mean iteration time of a closed loop, divided by that of alone."""
    busy_time: Figure | None
    """Time of hp's requests from start to end, without queueing, divided by that of alone."""
    hp_throughput: Figure | None
    """hp's throughput divided by hp's capacity when hp runs alone."""
    be: Figure | None
    """Sum over all be clients: the client's throughput divided by that of its workload alone in the same round."""
    be_over_bound: Figure | None
    """`be` divided by `PairFigures.be_bound`."""
    total: Figure | None
    """hp_throughput + be."""
    unfairness: Figure | None
    """Largest deviation of a be client from its fair share, relative to that share; with at least two be clients."""
    be_clients: list[ClientShare] = []
    """With several be clients, the share of each."""
    of_ceiling: Figure | None
    """hp + be divided by the ceiling (`CeilingCurve`) at the same hp p99; None without runs for a ceiling."""
    hiccups: Hiccups = Hiccups()


class ClosedLoop(_Model):
    """Speeds of hp and be in closed loops in one sharing mode, each divided by its speed on a GPU without sharing."""

    system: str
    """Name of the system under which hp and be ran at the same time."""
    round: int
    alone: float
    """hp's speed in the sharing mode while be does nothing."""
    overlapped: float
    """hp's speed beside be."""
    be_overlapped: float
    """be's speed beside hp."""


class CeilingCurve(_Model):
    """The highest hp + be that a queueing model (`ceiling`) reaches at each hp p99.

    Element i of both lists is one point; p99 ascends.
    """

    mode: str
    """The sharing mode: mps or threads."""
    hp_p99: list[float]
    """hp p99 divided by that of alone."""
    total: list[float]
    closed_loops: list[ClosedLoop]
    """The measured speeds that the model used."""


class PairFigures(_Model):
    """One hp beside one be."""

    hp: Client
    be_id: str
    be: list[Client]
    load: float | None
    """Load that the scenario configures, as a share of hp's capacity."""
    rate: float | None
    """hp requests a second, as scheduled."""
    rounds: list[int]
    alone_ms: dict[str, list[float]]
    """p50, p95, p99 of hp alone, by round."""
    alone_hiccups: Hiccups = Hiccups()
    hp_service_ms: list[float]
    """hp's closed-loop service time by round."""
    hp_share: list[float]
    """hp's share of the GPU's time, by round: arrival rate x closed-loop service time."""
    busy_periods_per_second: list[float]
    be_bound: list[float]
    """The lowest share of the GPU's time that be should get, by round; `analysis` has the reasons.

    0.97 x (1 - hp share - busy periods per second x 0.15 ms)
    """
    systems: list[SystemFigures]
    ceilings: list[CeilingCurve]
    plots: list[str] = []
    """Names of the plots, in the folder of summary.json."""

    @property
    def name(self) -> str:
        """The pair's name in reports."""
        return f"{self.hp.id} beside {self.be_id}"


class ProgramFigures(_Model):
    """A public program in one role, beside one partner under one system."""

    program: str
    """The workload with its options."""
    versions: dict[str, str]
    """The versions of its packages."""
    role: Literal["hp", "be"]
    beside: str
    """The partner, with its options."""
    system: str
    step_ms: float | None
    """The time of the program's step alone, as the program measured it when it was set up."""
    hp_p50: Figure
    """Divided by that of alone: latencies, or iteration times of a closed loop."""
    hp_p99: Figure
    be: Figure | None
    be_over_bound: Figure | None


class Verdict(_Model):
    """Whether a target was reached, and the figures that decide it."""

    target: str
    asked: str
    status: Status
    """incomplete: all measured pairs reach the target, but some pairs were not measured."""
    figures: str


class Summary(_Model):
    """All results of an output folder."""

    format: int = 1
    name: str
    machine: dict[str, Any]
    simulated: bool
    pairs: list[PairFigures]
    programs: list[ProgramFigures] = []
    """The same figures for each public program."""
    verdicts: list[Verdict]
    failures: list[str]
    """Sentences, each of which names a failed run or a broken file."""
    without_plots: str | None
    """Why no pair has plots; None if there are plots."""
