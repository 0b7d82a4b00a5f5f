"""What an analysis found, as models: the content of summary.json, and what tables, pictures and targets are made from.

A figure that was not measured is None, never a stand-in number.
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
        """Take over an estimate."""
        return cls(median=estimate.value, low=estimate.low, high=estimate.high, rounds=list(estimate.rounds))


class Client(_Model):
    """One process: its name, its workload, and what it said of itself."""

    id: str
    workload: str
    options: dict[str, Any]
    facts: dict[str, Any]
    gpu: str | None


class ClientShare(_Model):
    """What one of several be clients got; lists hold one value a round."""

    id: str
    weight: float
    gpu_time: list[float]
    """Its throughput over that of its work alone: how much of the GPU's time it had."""
    part: list[float]
    """Its part of what all be clients had."""
    fair: float
    """The part that its weight gives it."""


class Hiccups(_Model):
    """Requests of all rounds that took far longer than the others, in single ones; figures are not filtered."""

    number: int = 0
    longest_ms: float | None = None
    disturbed: int = 0
    """Runs during which a process of another GPU of the host started or ended."""

    @property
    def words(self) -> str:
        """Say it in a word or three; empty where there was none."""
        reported = f"{self.number} (longest {self.longest_ms:.0f} ms)" if self.number else ""
        disturbed = f"{self.disturbed} runs disturbed" if self.disturbed else ""
        return ", ".join(filter(None, [reported, disturbed]))


class SystemFigures(_Model):
    """One system beside one be; lists hold one value a round, in the order of `rounds`."""

    system: str
    spec: SystemSpec
    rounds: list[int]
    requests: int
    """That count, in the round with the fewest; iterations for a closed loop."""
    latency_ms: dict[str, list[float]]
    """p50, p95, p99: from the scheduled arrival; of a closed loop the time of an iteration."""
    latency: dict[str, Figure]
    """The same over `alone` of the same round."""
    iteration: Figure | None
    """Mean iteration time over alone's, of a closed loop."""
    busy_time: Figure | None
    """GPU time that the same requests took, from start to end, over alone's."""
    hp_throughput: Figure | None
    """hp's completed work over its solo capacity."""
    be: Figure | None
    """be's throughput over be alone in the same round; of several clients the sum."""
    be_over_bound: Figure | None
    """be over what hp leaves it; see `PairFigures.be_bound`."""
    total: Figure | None
    """hp_throughput + be."""
    unfairness: Figure | None
    """Largest deviation of a be client from its fair share, as a part of that share; with two clients or more."""
    be_clients: list[ClientShare] = []
    """Where there are several be clients, what each of them got."""
    of_ceiling: Figure | None
    """hp + be over the ceiling at the same hp p99; where the runs that a ceiling needs were made."""
    hiccups: Hiccups = Hiccups()


class ClosedLoop(_Model):
    """What overlap costs hp and gives be when neither ever waits for work; all over their own speeds alone."""

    system: str
    """That overlaps them."""
    round: int
    alone: float
    """hp's speed in the mode while be stands still."""
    overlapped: float
    """hp's speed beside be."""
    be_overlapped: float


class CeilingCurve(_Model):
    """The most that a queueing model lets hp + be reach, by hp p99; lists belong together, p99 ascending."""

    mode: str
    hp_p99: list[float]
    """Over alone."""
    total: list[float]
    closed_loops: list[ClosedLoop]
    """What it was made from."""


class PairFigures(_Model):
    """One hp beside one be."""

    hp: Client
    be_id: str
    be: list[Client]
    load: float | None
    """Wanted share of hp's capacity."""
    rate: float | None
    """hp requests a second, as scheduled."""
    rounds: list[int]
    alone_ms: dict[str, list[float]]
    """p50, p95, p99 of hp alone by round."""
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
    """Files beside summary.json."""

    @property
    def name(self) -> str:
        """The pair in a word or three."""
        return f"{self.hp.id} beside {self.be_id}"


class Verdict(_Model):
    """Whether a target was reached, and by what figure."""

    target: str
    asked: str
    status: Status
    """incomplete: what was measured holds, but not all was measured."""
    figures: str


class Summary(_Model):
    """All that was found in an output folder."""

    format: int = 1
    name: str
    machine: dict[str, Any]
    simulated: bool
    pairs: list[PairFigures]
    verdicts: list[Verdict]
    failures: list[str]
    """Sentences, each naming the run that failed or the file that is broken."""
    without_plots: str | None
    """Why no pair has plots."""
