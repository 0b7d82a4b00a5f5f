"""Predicts every pair of a measurement from hp alone and be alone, and sets the measured figures beside it.

The scenario lists the pairs, so a prediction needs no run of hp beside be. Only `_measured` reads such runs. If the
scenario does not list an hp, the run files of hp beside be give its pairs. Without such files, the hp is paired with
each be that has a run of be alone. A pair that the model does not cover has a reason instead of a prediction.
"""

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orion.bench.colocation import rates, scenario, work_alone
from orion.bench.colocation.plan import Plan, PlannedRun
from orion.bench.colocation.run_files import SUFFIX, Run, RunFolder
from orion.bench.samples import percentile
from orion.errors import Invalid, NotFound
from orion.simulation.gpu.costs import Costs
from orion.simulation.gpu.gate import predict, predict_stalls

GATES = ("orion", "gate")
BASELINES = "policy {0} does not stop be as the gate does, and no constants describe it"


@dataclass(frozen=True)
class Figures:
    """What one pair gets; None: not measured."""

    be: float | None
    """be's throughput, divided by be's throughput alone; the sum over all clients."""
    hp_p50: float
    hp_p99: float
    """ms: of latencies in an open loop, else of iterations."""


@dataclass(frozen=True)
class Asked:
    """One pair under one system, as the scenario or a run file describes it."""

    hp: str
    be: str
    system: str
    kind: str
    mode: str | None
    policy: str | None
    be_count: int
    work_key: str
    """Of one be client; see `Workload.work_key`."""
    rounds: tuple[int, ...]

    @property
    def refusal(self) -> str | None:
        """Return why the model does not cover the system; None if it does."""
        if self.kind == "timeslice":
            return "no gate stops be: the two contexts take time slices, and the model needs a gate"
        if self.kind == "mps" or (self.kind == "orion" and self.mode == "mps"):
            return "hp and be run side by side under MPS, and the model has one context on the GPU at a time"
        if self.kind == "plain-streams" or self.mode == "threads":
            return "hp and be are threads of one process, and the model has one context on the GPU at a time"
        if self.kind == "foreign":
            return "another project's scheduler decides, and no constants describe it"
        return None if (self.policy or "orion") in GATES else BASELINES.format(self.policy)


@dataclass(frozen=True)
class PairResult:
    """One pair under one system; figures are medians over rounds."""

    asked: Asked
    open_loop: bool | None
    """None: hp alone is missing."""
    predicted: Figures | None
    measured: Figures | None
    reason: str | None
    """Why there is no prediction."""


@dataclass(frozen=True)
class Archive:
    """All pairs of a folder."""

    pairs: list[PairResult]
    faults: list[str]
    """Sentences, each of which names a missing, failed or broken run."""
    gpus: list[str]
    """Models of the GPUs that measured."""


def predict_all(root: Path, costs: Costs, name: str) -> Archive:
    """Predict all pairs of an output folder.

    Args:
        root: The folder.
        costs: Constants of the GPU.
        name: Name of the folder or of the packed file, for errors.

    Raises:
        NotFound: The folder has no runs.
    """
    if not (root / "runs").is_dir():
        raise NotFound(f"{name} holds no runs of a colocation: give an output of `orion bench colocation`")
    folder = RunFolder(root)
    asked, missing = _asked(folder)
    pairs: list[PairResult] = []
    gpus: set[str] = set()
    for hp in sorted({each.hp for each in asked}):
        solos = rates.be_solos(folder, hp)
        rounds = {run.round: run for path in folder.rounds(hp) if (run := folder.load(path / f"alone{SUFFIX}"))}
        gpus |= {str(run.device.get("model") or "an unknown GPU") for run in rounds.values()}
        works = work_alone.BestEffortAlone(folder, hp, solos, costs)
        pairs += [_pair(folder, each, rounds, works, solos, costs) for each in asked if each.hp == hp]
        folder.forget(root / "runs" / hp)
    folder.check_rest()
    return Archive(pairs, [*folder.failures.values(), *missing], sorted(gpus))


def _asked(folder: RunFolder) -> tuple[list[Asked], list[str]]:
    """Return the pairs, sorted, and a sentence for each run that is missing."""
    found: dict[tuple[str, str, str], Asked] = {}
    missing = []
    try:
        planned = [run for unit in Plan(scenario.read(folder.root / "scenario.yaml")).units for run in unit.runs]
    except Invalid as error:
        reason = str(error).replace(f"{folder.root}/", "")
        folder.failures["scenario.yaml"] = f"{reason}: the pairs are those of the run files"
        planned = []
    for run in planned:
        if not (folder.root / run.path).exists():
            missing.append(f"{run.path} is missing")
        if run.kind == "beside":
            _add(found, _of_plan(run))
    known = {run.hp_id for run in planned}
    for each in _of_files(folder, [hp for hp in folder.hp_ids() if hp not in known]):
        _add(found, each)
    return [found[key] for key in sorted(found)], sorted(missing)


def _add(found: dict[tuple[str, str, str], Asked], each: Asked) -> None:
    key = (each.hp, each.be, each.system)
    known = found.get(key)
    found[key] = each if known is None else replace(known, rounds=tuple(sorted({*known.rounds, *each.rounds})))


def _of_plan(run: PlannedRun) -> Asked:
    entry = run.entry
    if entry is None or run.be_id is None:
        raise ValueError(f"a run beside be has no be: {run}")
    mode, policy = getattr(run.spec, "mode", None), getattr(run.spec, "policy", None)
    work_key = json.dumps([entry.workload, entry.options], sort_keys=True)
    return Asked(run.hp_id, run.be_id, run.system, run.spec.kind, mode, policy, entry.count, work_key, (run.round,))


def _of_files(folder: RunFolder, hp_ids: Sequence[str]) -> Iterator[Asked]:
    """Yield the pairs of the run files, one for each round; for an hp without pairs, each be alone beside a gate."""
    for hp in hp_ids:
        for path in folder.be_alone(hp) if not folder.be_ids(hp) else ():
            if (run := folder.load(path)) is not None and run.be:
                key = run.be[0].work_key
                yield Asked(hp, run.be[0].id, "orion", "orion", "timeslice", "orion", 1, key, (run.round,))
        for be in folder.be_ids(hp):
            for path in folder.rounds(hp):
                for system in folder.systems(hp, be):
                    run = folder.load(path / be / f"{system}{SUFFIX}")
                    if run is not None and run.be and not rates.CLOSED_OVERLAP.fullmatch(system):
                        spec, key = run.system_spec, run.be[0].work_key
                        yield Asked(hp, be, system, spec.kind, spec.mode, spec.policy, len(run.be), key, (run.round,))
        folder.forget(folder.root / "runs" / hp)


def _pair(
    folder: RunFolder, asked: Asked, rounds: dict[int, Run], works: "work_alone.BestEffortAlone", solos: rates.Solos,
    costs: Costs,
) -> PairResult:  # fmt: skip
    alone = [rounds[number] for number in asked.rounds if number in rounds]
    open_loop = alone[0].open_loop if alone else None
    measured = [
        _measured(folder, folder.root / "runs" / asked.hp / str(run.round) / asked.be / f"{asked.system}{SUFFIX}", run,
                  solos)
        for run in alone
    ]  # fmt: skip
    if (reason := asked.refusal) is None and not alone:
        reason = "hp alone is missing in all rounds"
    predicted = [] if reason else [_predicted(run, asked, works, costs) for run in alone]
    if reason is None and not any(predicted):
        reason = works.refusal(asked.work_key) or "hp alone has no requests, and no input stall in which be could run"
    return PairResult(asked, open_loop, _median(predicted), _median(measured), reason)


def _predicted(run: Run, asked: Asked, works: "work_alone.BestEffortAlone", costs: Costs) -> Figures | None:
    be = works.of(run.round, asked.work_key, asked.be_count)
    hp = work_alone.high_priority(run, costs)
    if be is None or hp is None or not len(run.latencies if run.open_loop else run.iterations):
        return None
    if run.open_loop:
        window = (1e3 * run.window[0], 1e3 * run.window[1])
        found = predict(hp, be, costs, window)
        return _figures(found.be, found.latencies_ms[run.first :])
    stall = work_alone.stall_ms(run.hp) if run.hp else 0.0
    if not stall:
        return None
    stalled = predict_stalls(1e3 * run.iterations, stall, be, costs)
    return _figures(stalled.be, stalled.latencies_ms)


def _measured(folder: RunFolder, path: Path, alone: Run, solos: rates.Solos) -> Figures | None:
    run = folder.load(path)
    if run is None:
        return None
    name = str(path.relative_to(folder.root))
    times = run.latencies if run.open_loop else run.iterations
    same = len(run.arrivals) == len(alone.arrivals) and np.allclose(run.arrivals, alone.arrivals, rtol=0, atol=2e-6)
    if not same or not len(times):
        why = "hp completed nothing" if same else "its arrivals differ from those of hp alone"
        folder.failures[name] = f"{name} does not count: {why}"
        return None
    shares = rates.be_shares(run, solos)
    be = None if shares is None else float(sum(share.mean() for share in shares))
    return _figures(be, 1e3 * times)


def _figures(be: float | None, times_ms: Any) -> Figures | None:
    """Return the figures; None if a time or an amount in the run was absurdly large."""
    found = Figures(be, percentile(times_ms, 50), percentile(times_ms, 99))
    return found if all(math.isfinite(value) for value in (be or 0.0, found.hp_p50, found.hp_p99)) else None


def _median(rounds: Sequence[Figures | None]) -> Figures | None:
    known = [each for each in rounds if each is not None]
    if not known:
        return None
    shares = [each.be for each in known if each.be is not None]
    be = statistics.median(shares) if shares else None
    p50, p99 = (statistics.median(getattr(each, name) for each in known) for name in ("hp_p50", "hp_p99"))
    return Figures(be, p50, p99)
