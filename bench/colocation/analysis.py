"""Computes figures from run files: one hp beside one be, each system against `alone` of the same round.

A round counts for a system if the system's run and its references are complete and had the same arrivals. A missing
run is left out; the analysis never takes a run of another round instead.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from orion.bench.colocation import ceilings, rates
from orion.bench.colocation.hiccups import hiccups
from orion.bench.colocation.run_files import SUFFIX, Run, RunFolder, Workload
from orion.bench.colocation.summary import Client, ClientShare, Figure, PairFigures, SystemFigures
from orion.bench.estimates import (
    Estimate,
    Pair,
    Samples,
    median_of_rounds,
    paired_mean_ratio,
    paired_percentile_ratios,
    paired_rate_ratio,
    unpaired_percentile_ratios,
)
from orion.bench.samples import percentile

Row = TypeVar("Row")
RANKS = (50, 95, 99)
SHORTEST_GAP = 0.2e-3  # seconds; a shorter pause between two requests does not end a busy period
SWITCH_SECONDS = 0.15e-3  # time that be may lose for each busy period of hp
EFFICIENCY = 0.97  # the part of hp's free time that be should get at least


@dataclass(frozen=True)
class Round:
    """The references of one round."""

    number: int
    folder: Path
    alone: Run
    capacity: float | None
    """hp's closed-loop rate when it runs alone, requests or iterations a second."""

    @property
    def hp_share(self) -> float | None:
        """Return hp's share of the GPU's time: its arrivals a second times its closed-loop service time."""
        if not self.alone.open_loop or self.capacity is None:
            return None
        return len(self.alone.latencies) / self.alone.seconds / self.capacity

    @property
    def be_bound(self) -> float | None:
        """Return the lowest share of the GPU's time that be should get."""
        share = self.hp_share
        return (
            None if share is None else EFFICIENCY * (1 - share - busy_periods_per_second(self.alone) * SWITCH_SECONDS)
        )


@dataclass(frozen=True)
class Measured:
    """One system in one round, with its references."""

    run: Run
    reference: Round
    shares: list[Samples] | None
    """Each be client's throughput as a share of its throughput alone, by parts of the window; None without a
    reference."""
    solo: Samples | None
    """The throughput of be alone by parts of its window, divided by its mean."""

    @property
    def be(self) -> Samples | None:
        """Return the sum of the be clients' shares."""
        return None if self.shares is None else np.asarray(np.sum(self.shares, axis=0))

    @property
    def hp(self) -> Samples | None:
        """Return hp's throughput as a share of its capacity, by parts of the window."""
        capacity = self.reference.capacity
        return None if capacity is None else rates.hp_bins(self.run) / capacity

    @property
    def total(self) -> Samples | None:
        """Return the sum of hp's share and be's share, by parts of the window."""
        return None if self.be is None or self.hp is None else self.hp + self.be

    @property
    def times(self) -> Samples:
        """Return latencies (open loop) or iteration times (closed loop), in seconds."""
        return _times(self.run)


def analyse(folder: RunFolder, hp: str, be: str, solos: rates.Solos) -> PairFigures | None:
    """Return all figures of one hp beside one be; None if no round has both a run `alone` and a run beside be."""
    rounds = [found for path in folder.rounds(hp) if (found := _round(folder, path)) is not None]
    names = [name for name in folder.systems(hp, be) if not rates.CLOSED_OVERLAP.fullmatch(name)]
    measured = {name: _measured(folder, rounds, be, name, solos) for name in names}
    measured = {name: runs for name, runs in measured.items() if runs}
    if not measured:
        return None
    used = [each for each in rounds if any(each is one.reference for runs in measured.values() for one in runs)]
    modelled = ceilings.model([inputs for each in used if (inputs := _inputs(folder, each, be, solos))])
    first = next(iter(measured.values()))[0].run
    alone = used[0].alone
    return PairFigures(
        hp=_client(alone.hp or Workload(id=hp, workload=hp)),
        be_id=be,
        be=[_client(client) for client in first.be],
        load=alone.load,
        rate=alone.rate,
        rounds=[each.number for each in used],
        alone_ms=_milliseconds([_times(each.alone) for each in used]),
        alone_hiccups=hiccups([each.alone for each in used]),
        hp_service_ms=[1e3 / each.capacity for each in used if each.capacity is not None],
        hp_share=_known([each.hp_share for each in used]),
        busy_periods_per_second=[busy_periods_per_second(each.alone) for each in used if each.alone.open_loop],
        be_bound=_known([each.be_bound for each in used]),
        systems=[_figures(name, runs, modelled) for name, runs in measured.items()],
        ceilings=modelled.curves(),
    )


def latencies(folder: RunFolder, pair: PairFigures) -> dict[str, Samples]:
    """Return latencies (or iteration times) of all rounds in milliseconds, by system, `alone` first."""
    paths = folder.rounds(pair.hp.id)
    by_number = {run.round: path for path in paths if (run := folder.load(path / f"alone{SUFFIX}")) is not None}
    wanted = [("alone", [by_number[number] / f"alone{SUFFIX}" for number in pair.rounds])]
    for each in pair.systems:
        wanted.append((each.system, [by_number[n] / pair.be_id / f"{each.system}{SUFFIX}" for n in each.rounds]))
    found = {}
    for name, files in wanted:
        found[name] = np.concatenate([1e3 * _times(run) for file in files if (run := folder.load(file)) is not None])
    return found


def busy_periods_per_second(alone: Run) -> float:
    """Return how many times per second hp goes from idle to busy, within the window."""
    starts, ends = np.asarray(alone.starts), np.asarray(alone.ends)
    fresh = np.concatenate(([True], starts[1:] - ends[:-1] > SHORTEST_GAP))
    inside = (starts >= alone.window[0]) & (starts < alone.window[1])
    return int((fresh & inside).sum()) / alone.seconds


def _inputs(folder: RunFolder, each: Round, be: str, solos: rates.Solos) -> ceilings.Inputs | None:
    if not each.alone.open_loop or each.capacity is None:
        return None
    return ceilings.Inputs(each.alone, each.capacity, rates.speeds(folder, each.folder, be, each.capacity, solos))


def _round(folder: RunFolder, path: Path) -> Round | None:
    alone = folder.load(path / f"alone{SUFFIX}")
    if alone is None or not len(_times(alone)):
        return None
    closed = folder.load(path / f"hp-closed-loop{SUFFIX}") if alone.open_loop else alone
    rate = rates.closed_rate(closed) if closed is not None else 0.0
    return Round(alone.round, path, alone, rate if rate > 0 else None)


def _measured(folder: RunFolder, rounds: Sequence[Round], be: str, system: str, solos: rates.Solos) -> list[Measured]:
    found = []
    for each in rounds:
        path = each.folder / be / f"{system}{SUFFIX}"
        run = folder.load(path)
        if run is None:
            continue
        if run.gpu_uuid != each.alone.gpu_uuid:
            name = str(path.relative_to(folder.root)).removesuffix(SUFFIX)
            folder.failures[f"{name} elsewhere"] = f"{name} counts, but ran on another GPU than alone of its round"
        if refusal := _refusal(run, each.alone):
            name = str(path.relative_to(folder.root))
            folder.failures[name] = f"{name.removesuffix(SUFFIX)} does not count: {refusal}"
            continue
        found.append(Measured(run, each, rates.be_shares(run, solos), rates.be_reference(run, solos)))
    return found


def _refusal(run: Run, alone: Run) -> str | None:
    """Return why a run cannot be compared with its round's reference; None if it can."""
    same = len(run.arrivals) == len(alone.arrivals) and np.allclose(run.arrivals, alone.arrivals, rtol=0, atol=2e-6)
    if not same:
        return "its arrivals differ from those of alone in the same round"
    if not len(_times(run)):
        return "hp completed nothing in the window"
    return None


def _figures(name: str, runs: Sequence[Measured], modelled: ceilings.Modelled) -> SystemFigures:
    open_loop = runs[0].run.open_loop
    spec = runs[0].run.system_spec
    compare = paired_percentile_ratios if open_loop else unpaired_percentile_ratios
    ratios = compare([(one.times, _times(one.reference.alone)) for one in runs], RANKS)
    solid = [one for one in runs if one.be is not None and one.solo is not None]
    return SystemFigures(
        system=name,
        spec=spec,
        rounds=[one.reference.number for one in runs],
        requests=min(len(one.times) for one in runs),
        latency_ms=_milliseconds([one.times for one in runs]),
        latency={f"p{rank}": Figure.of(ratio) for rank, ratio in zip(RANKS, ratios, strict=True)},
        iteration=None if open_loop else _rate_figure((rates.hp_bins(one.reference.alone), rates.hp_bins(one.run))
                                                      for one in runs),
        busy_time=_figure(paired_mean_ratio, [(one.run.services, one.reference.alone.services) for one in runs])
        if open_loop else None,
        hp_throughput=_rate_figure((one.hp, [1.0]) for one in runs if one.hp is not None),
        be=_rate_figure((one.be, one.solo) for one in solid if one.be is not None and one.solo is not None),
        be_over_bound=_rate_figure(
            (one.be, bound * one.solo) for one in solid
            if one.be is not None and one.solo is not None and (bound := one.reference.be_bound or 0.0) > 0
        ),
        total=_rate_figure((one.total, [1.0]) for one in runs if one.total is not None),
        unfairness=_figure(median_of_rounds, _known([unfairness(one) for one in runs])),
        be_clients=_client_shares(runs),
        of_ceiling=_figure(median_of_rounds, modelled.fractions(spec.overlap_mode, _points(runs))),
        hiccups=hiccups([one.run for one in runs]),
    )  # fmt: skip


def unfairness(one: Measured) -> float | None:
    """Return the largest deviation of a be client from its fair share, relative to that share; None for one client."""
    if one.shares is None or len(one.shares) < 2:
        return None
    got = np.asarray([share.mean() for share in one.shares])
    parts = np.asarray([client.part for client in one.run.be])
    fair = got.sum() * parts / parts.sum()
    return float(np.max(np.abs(got / fair - 1))) if got.sum() > 0 else 1.0


def _client_shares(runs: Sequence[Measured]) -> list[ClientShare]:
    """Return the share of each of several be clients, in the rounds that also measured the client's work alone."""
    rows = [[share.mean() for share in one.shares] for one in runs if one.shares is not None]
    clients = runs[0].run.be
    if not rows or len(clients) < 2 or any(len(row) != len(clients) for row in rows):
        return []
    whole = sum(client.part for client in clients)
    return [
        ClientShare(
            id=client.id,
            request=client.request,
            gpu_time=[row[index] for row in rows],
            part=[row[index] / max(sum(row), 1e-12) for row in rows],
            fair=client.part / whole,
        )
        for index, client in enumerate(clients)
    ]


def _points(runs: Sequence[Measured]) -> list[tuple[int, float, float]]:
    """Return (round, hp p99 divided by that of alone, hp + be) of the rounds that have both figures."""
    return [
        (one.reference.number, percentile(one.times, 99) / percentile(_times(one.reference.alone), 99), total.mean())
        for one in runs
        if (total := one.total) is not None
    ]


def _times(run: Run) -> Samples:
    return run.latencies if run.open_loop else run.iterations


def _milliseconds(rounds: Sequence[Samples]) -> dict[str, list[float]]:
    return {f"p{rank}": [1e3 * percentile(times, rank) for times in rounds] for rank in RANKS}


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _figure(estimate: Callable[[Sequence[Row]], Estimate], rows: Sequence[Row]) -> Figure | None:
    return Figure.of(estimate(rows)) if rows else None


def _rate_figure(pairs: Iterable[Pair]) -> Figure | None:
    return _figure(paired_rate_ratio, list(pairs))


def _client(workload: Workload) -> Client:
    gpu = workload.about.get("gpu")
    return Client(
        id=workload.id, workload=workload.workload, options=workload.options, facts=workload.facts,
        gpu=gpu if isinstance(gpu, str) else None,
    )  # fmt: skip
