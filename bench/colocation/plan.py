"""Lists all runs of a scenario in the order in which they run, and names the file of each.

Here <hp>, <be>, <system> and <workload> are names, and <round> is a number:

    runs/<hp>/<round>/hp-closed-loop.json.gz    hp alone in a closed loop: its capacity and service time
    runs/<hp>/<round>/alone.json.gz             hp alone with its arrivals
    runs/<hp>/<round>/<be>/<system>.json.gz     hp beside be
    runs/<hp>/<round>/be-alone/<workload>.json.gz
                                                be alone in a closed loop: always one process, even if the be entry
                                                has a count of several

If an experiment asks for a ceiling, these runs measure the speeds that the queueing model (`ceiling`) needs:

    runs/<hp>/<round>/mps-closed-loop.json.gz, threads-closed-loop.json.gz
                                                hp alone in a closed loop, in the mode mps or threads
    runs/<hp>/<round>/<be>/closed-overlap-<system>.json.gz, threads-closed-overlap-<system>.json.gz
                                                hp and be in closed loops, together

All runs of one hp in one round, including the references, use the same GPU, because GPUs of one model differ by more
than the effects to measure. The systems of a pair run one after another in random order, so a drift of clocks or
temperature affects all of them alike. The runs of hp alone (`alone` and the closed loops in a mode) are made once a
round. The plan chooses a random pair, and mixes these runs with the runs of that pair.
"""

import fnmatch
import json
import random
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from orion.bench.colocation import names
from orion.bench.colocation.scenario import BestEffort, Experiment, Scenario
from orion.bench.colocation.systems import STANDARD, System, in_threads
from orion.errors import Invalid

Kind = Literal["hp-closed-loop", "mode-closed-loop", "alone", "be-alone", "beside", "closed-overlap"]
PAIRED: tuple[Kind, ...] = ("beside", "closed-overlap")
Pair = tuple[Experiment, BestEffort]


@dataclass(frozen=True)
class PlannedRun:
    """One run."""

    kind: Kind
    path: str
    """Path of the run's file in the output folder."""
    round: int
    system: str
    """Name of the system in the scenario; without a system, the name of the run, such as `alone` or `be-alone`."""
    spec: System
    hp_id: str
    """Name of the experiment's hp; set also for a run of be alone."""
    be_id: str | None
    experiment: Experiment
    entry: BestEffort | None
    requests: int
    """Minimum number of measured hp requests."""
    block: str
    """Runs with the same block are consecutive and have the same workloads."""

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the roles that run: "hp", "be" or both."""
        return ("be",) if self.kind == "be-alone" else ("hp", "be") if self.kind in PAIRED else ("hp",)

    @property
    def closed(self) -> bool:
        """Return whether hp runs in a closed loop for some seconds, instead of at its scheduled arrivals."""
        return self.kind in ("hp-closed-loop", "mode-closed-loop", "closed-overlap")

    def __str__(self) -> str:
        beside = f" beside {self.be_id}" if self.be_id else ""
        return f"{self.hp_id}{beside}, system {self.system}, round {self.round + 1}"


@dataclass(frozen=True)
class Unit:
    """All runs of one hp in one round; they use the same GPU, since they are compared with each other."""

    hp_id: str
    round: int
    runs: tuple[PlannedRun, ...]

    @property
    def priority(self) -> int:
        """Return the highest priority of the unit's experiments."""
        return max((run.experiment.priority for run in self.runs), default=0)


class Plan:
    """The runs of a resolved scenario."""

    def __init__(self, scenario: Scenario) -> None:
        """Name and order all runs.

        Raises:
            Invalid: Two experiments have the same pair, or different numbers of requests for one hp.
        """
        self.scenario = scenario
        self._hp_names = names.unique(
            [(names.of_hp(each.hp, each.arrivals), _hp_fields(each)) for each in scenario.experiments]
        )
        self._be_names = names.unique(
            [(names.of_be(entry), entry.model_dump()) for each in scenario.experiments for entry in each.be]
        )
        self._workload_names = names.unique(
            [
                (names.of_load(entry), entry.model_dump(include={"workload", "options"}))
                for each in scenario.experiments
                for entry in each.be
            ]
        )
        grouped: dict[str, list[Experiment]] = {}
        for experiment in scenario.experiments:
            grouped.setdefault(self.hp_id(experiment), []).append(experiment)
        self.units = [unit for hp_id, same in grouped.items() for unit in self._units_of(hp_id, same)]

    def hp_id(self, experiment: Experiment) -> str:
        """Return the name of an experiment's hp."""
        return self._hp_names[json.dumps(_hp_fields(experiment), sort_keys=True)]

    def be_id(self, entry: BestEffort) -> str:
        """Return the name of a be entry."""
        return self._be_names[json.dumps(entry.model_dump(), sort_keys=True)]

    def _workload_id(self, entry: BestEffort) -> str:
        """Return the name of the workload of one process of an entry."""
        return self._workload_names[json.dumps(entry.model_dump(include={"workload", "options"}), sort_keys=True)]

    def only(self, pattern: str) -> None:
        """Keep only the runs whose hp/be/system matches a glob pattern, and their references.

        Raises:
            Invalid: No run matches.
        """
        self.units = [each for each in (_matching(unit, pattern) for unit in self.units) if each.runs]
        if not self.units:
            raise Invalid(f"--only {pattern} matches no run; runs are named hp/be/system (see --dry-run)")

    def skip(self, workloads: Container[str]) -> None:
        """Leave out the runs of these workloads; if hp is one of them, all runs of that hp."""

        def kept(run: PlannedRun) -> bool:
            be = run.entry.workload if run.entry else None
            return run.experiment.hp.workload not in workloads and be not in workloads

        units = [replace(unit, runs=tuple(filter(kept, unit.runs))) for unit in self.units]
        self.units = [unit for unit in units if any(run.entry for run in unit.runs)]

    def _units_of(self, hp_id: str, same: list[Experiment]) -> Iterator[Unit]:
        requests = {each.requests or self.scenario.requests for each in same}
        pairs = [(each, entry) for each in same for entry in each.be]
        if len({self.be_id(entry) for _, entry in pairs}) < len(pairs):
            raise Invalid(f"experiments: {hp_id} is listed twice beside the same be; remove one")
        if len(requests) > 1:
            raise Invalid(
                f"experiments: {hp_id} has different numbers of requests, {sorted(requests)}; give one number"
            )
        for number in range(self.scenario.rounds):
            left = [pair for pair in pairs if number < (pair[0].rounds or self.scenario.rounds)]
            systems = [name for each, _ in left for name in (*each.systems, *each.ceiling)]
            if any(self._specs(systems, number)) or set(systems) == {"alone"}:
                yield Unit(hp_id, number, tuple(self._round(hp_id, left, max(requests), number)))

    def _round(self, hp_id: str, pairs: list[Pair], requests: int, number: int) -> Iterator[PlannedRun]:
        draw = random.Random(f"{self.scenario.seed}/{hp_id}/{number}")
        folder = f"runs/{hp_id}/{number}"

        def planned(kind: Kind, file: str, pair: Pair, system: str, spec: System, block: str) -> PlannedRun:
            entry = pair[1] if kind in ("be-alone", *PAIRED) else None
            be_id = self.be_id(entry) if entry else None
            path = f"{file}.json.gz"
            return PlannedRun(kind, path, number, system, spec, hp_id, be_id, pair[0], entry, requests, block)

        unhooked = STANDARD["alone"]
        yield planned("hp-closed-loop", f"{folder}/hp-closed-loop", pairs[0], "hp-closed-loop", unhooked, f"{number}")
        referenced: set[str] = set()
        alone_index = draw.randrange(len(pairs))
        for index, pair in enumerate(draw.sample(pairs, len(pairs))):
            be_id = self.be_id(pair[1])
            block = f"{number}/{be_id}"
            runs = []
            if (reference := f"{folder}/be-alone/{self._workload_id(pair[1])}") not in referenced:
                referenced.add(reference)
                runs.append(planned("be-alone", reference, pair, "be-alone", unhooked, block))
            if index == alone_index:
                runs.append(planned("alone", f"{folder}/alone", pair, "alone", unhooked, block))
                modes = dict.fromkeys(self._threads(name) for each, _ in pairs for name in each.ceiling)
                for threads in modes:
                    name = "threads-closed-loop" if threads else "mps-closed-loop"
                    spec = STANDARD["none-in-threads" if threads else "mps"]
                    runs.append(planned("mode-closed-loop", f"{folder}/{name}", pair, name, spec, block))
            for system, spec in self._specs(pair[0].systems, number):
                runs.append(planned("beside", f"{folder}/{be_id}/{system}", pair, system, spec, block))
            for system, spec in self._specs(pair[0].ceiling, number):
                name = f"{'threads-' if self._threads(system) else ''}closed-overlap-{system}"
                runs.append(planned("closed-overlap", f"{folder}/{be_id}/{name}", pair, name, spec, block))
            draw.shuffle(runs)
            yield from runs

    def _threads(self, system: str) -> bool:
        return in_threads(self.scenario.systems[system])

    def _specs(self, wanted: list[str], number: int) -> Iterator[tuple[str, System]]:
        for system in dict.fromkeys(wanted):
            spec = self.scenario.systems[system]
            if spec.kind != "alone" and number < (spec.rounds or self.scenario.rounds):
                yield system, spec


def _hp_fields(experiment: Experiment) -> dict[str, Any]:
    return {"hp": experiment.hp.model_dump(), "arrivals": experiment.arrivals.model_dump()}


def _matching(unit: Unit, pattern: str) -> Unit:
    beside = [run for run in unit.runs if fnmatch.fnmatch(f"{run.hp_id}/{run.be_id}/{run.system}", pattern)]
    chosen = {run.path for run in beside if run.kind in PAIRED}
    ceiling = any(run.kind == "closed-overlap" for run in beside)
    loads = {json.dumps(_be_load(run)) for run in beside if run.kind in PAIRED}

    def kept(run: PlannedRun) -> bool:
        if run.kind == "be-alone":
            return json.dumps(_be_load(run)) in loads
        if run.kind == "mode-closed-loop":
            return ceiling
        return run.path in chosen or (run.kind not in PAIRED and bool(chosen))

    return Unit(unit.hp_id, unit.round, tuple(run for run in unit.runs if kept(run)))


def _be_load(run: PlannedRun) -> Any:
    return run.entry and [run.entry.workload, run.entry.options]
