"""The results of an analysis: the content of summary.json, and the input of tables, plots and targets.

A figure that was not measured is None, never a placeholder number.
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
    """One process: its name, its workload, and its own details (`facts`)."""

    id: str
    workload: str
    options: dict[str, Any]
    facts: dict[str, Any]
    gpu: str | None


class ClientShare(_Model):
    """The share of one of several be clients; lists have one value for each round."""

    id: str
    weight: float
    gpu_time: list[float]
    """Its throughput over that of its work alone, which is its share of the GPU's time."""
    part: list[float]
    """Its part of the GPU time of all be clients."""
    fair: float
    """Its fair part, by its weight."""


class Hiccups(_Model):
    """Single requests of all rounds that took far longer than the others; figures include them."""

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
    """p50, p95, p99 from the scheduled arrival; in a closed loop, of iteration times."""
    latency: dict[str, Figure]
    """The same percentiles, over those of `alone` in the same round."""
    iteration: Figure | None
    """Mean iteration time of a closed loop, over alone's."""
    busy_time: Figure | None
    """Time of the same requests from start to end, over alone's."""
    hp_throughput: Figure | None
    """hp's throughput over its capacity alone."""
    be: Figure | None
    """be's throughput over be alone in the same round; the sum of all be clients."""
    be_over_bound: Figure | None
    """be over its bound; see `PairFigures.be_bound`."""
    total: Figure | None
    """hp_throughput + be."""
    unfairness: Figure | None
    """Largest deviation of a be client from its fair share, relative to that share; with at least two be clients."""
    be_clients: list[ClientShare] = []
    """With several be clients, the share of each."""
    of_ceiling: Figure | None
    """hp + be over the ceiling at the same hp p99, if the runs for a ceiling were made."""
    hiccups: Hiccups = Hiccups()


class ClosedLoop(_Model):
    """Speeds of hp and be in closed loops, each relative to its speed alone."""

    system: str
    """The overlapping system."""
    round: int
    alone: float
    """hp's speed in the mode while be does nothing."""
    overlapped: float
    """hp's speed beside be."""
    be_overlapped: float


class CeilingCurve(_Model):
    """The highest hp + be of a queueing model by hp p99; element i of both lists is one point, p99 ascending."""

    mode: str
    hp_p99: list[float]
    """hp p99 over alone."""
    total: list[float]
    closed_loops: list[ClosedLoop]
    """The measured speeds that the model used."""


class PairFigures(_Model):
    """One hp beside one be."""

    hp: Client
    be_id: str
    be: list[Client]
    load: float | None
    """Load that the scenario asks for, as a share of hp's capacity."""
    rate: float | None
    """hp requests a second, as scheduled."""
    rounds: list[int]
    alone_ms: dict[str, list[float]]
    """p50, p95, p99 of hp alone, by round."""
    alone_hiccups: Hiccups = Hiccups()
    hp_service_ms: list[float]
    """hp's closed-loop service time by round."""
    hp_share: list[float]
    """Arrival rate x closed-loop service time by round."""
    busy_periods_per_second: list[float]
    be_bound: list[float]
    """0.97 x (1 - hp share - busy periods per second x 0.15 ms) by round."""
    systems: list[SystemFigures]
    ceilings: list[CeilingCurve]
    plots: list[str] = []
    """Names of the plots, in the folder of summary.json."""

    @property
    def name(self) -> str:
        """The pair's name in reports."""
        return f"{self.hp.id} beside {self.be_id}"


class Verdict(_Model):
    """Whether a target was reached, with the figures that decide it."""

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
    verdicts: list[Verdict]
    failures: list[str]
    """Sentences, each of which names a failed run or a broken file."""
    without_plots: str | None
    """Why no pair has plots; None if there are plots."""
