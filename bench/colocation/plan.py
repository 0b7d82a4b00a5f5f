"""Every run of a scenario, in its order, with the file that it fills.

    runs/<hp>/<round>/hp-closed-loop.json.gz    hp alone as fast as it can: its capacity, and its service time
    runs/<hp>/<round>/alone.json.gz             hp alone, its requests
    runs/<hp>/<round>/<be>/<system>.json.gz     hp beside be
    runs/<hp>/<round>/be-alone/<workload>.json.gz
                                                be alone as fast as it can; one process of it, whatever its count

and where an experiment asks for a ceiling, what its model is made from:

    runs/<hp>/<round>/mps-closed-loop.json.gz, threads-closed-loop.json.gz
                                                hp alone as fast as it can, in that mode
    runs/<hp>/<round>/<be>/closed-overlap-<system>.json.gz, threads-closed-overlap-<system>.json.gz
                                                hp and be as fast as they can

A round of an hp, with all that it is held to, stays on one GPU: GPUs of one model differ by more than what is to be
told apart. All systems of a pair run in turn, in random order, so drift of clocks and temperature meets all of them
alike. `alone` is shuffled into one of the pairs of its round.
"""

import fnmatch
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from orion.bench.colocation import names
from orion.bench.colocation.scenario import BestEffort, Experiment, Scenario, ScenarioError
from orion.bench.colocation.systems import STANDARD, System, in_threads

Kind = Literal["hp-closed-loop", "mode-closed-loop", "alone", "be-alone", "beside", "closed-overlap"]
PAIRED: tuple[Kind, ...] = ("beside", "closed-overlap")
Pair = tuple[Experiment, BestEffort]


@dataclass(frozen=True)
class PlannedRun:
    """One run."""

    kind: Kind
    path: str
    """Of its file, in the output folder."""
    round: int
    system: str
    """Its name in the scenario; for the references the name of the kind."""
    spec: System
    hp_id: str
    """Of the experiment that it belongs to, for be alone too."""
    be_id: str | None
    experiment: Experiment
    entry: BestEffort | None
    requests: int
    """hp requests that count, at least."""
    block: str
    """Runs of a block follow each other with the same workloads."""

    @property
    def sides(self) -> tuple[str, ...]:
        """Return who works in it: "hp", "be"."""
        return ("be",) if self.kind == "be-alone" else ("hp", "be") if self.kind in PAIRED else ("hp",)

    @property
    def closed(self) -> bool:
        """Say whether hp runs as fast as it can for some seconds, whatever its arrivals."""
        return self.kind in ("hp-closed-loop", "mode-closed-loop", "closed-overlap")

    def __str__(self) -> str:
        beside = f" beside {self.be_id}" if self.be_id else ""
        return f"{self.hp_id}{beside}, system {self.system}, round {self.round + 1}"


@dataclass(frozen=True)
class Unit:
    """All runs of one round of an hp workload: they stay on one GPU, since they are held to each other."""

    hp_id: str
    round: int
    runs: tuple[PlannedRun, ...]

    @property
    def priority(self) -> int:
        """Return that of the most important of its experiments."""
        return max((run.experiment.priority for run in self.runs), default=0)


class Plan:
    """The runs of a resolved scenario."""

    def __init__(self, scenario: Scenario) -> None:
        """Name everything.

        Raises:
            ScenarioError: Two experiments ask for the same pair, or for different numbers of requests of one hp.
        """
        self.scenario = scenario
        self._hp_names = names.reported_apart(
            [(names.of_hp(each.hp, each.arrivals), _hp_fields(each)) for each in scenario.experiments]
        )
        self._be_names = names.reported_apart(
            [(names.of_be(entry), entry.model_dump()) for each in scenario.experiments for entry in each.be]
        )
        self._workload_names = names.reported_apart(
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
        """Return the name of an entry of be."""
        return self._be_names[json.dumps(entry.model_dump(), sort_keys=True)]

    def _workload_id(self, entry: BestEffort) -> str:
        """Return the name of what one process of an entry runs."""
        return self._workload_names[json.dumps(entry.model_dump(include={"workload", "options"}), sort_keys=True)]

    def only(self, pattern: str) -> None:
        """Keep the runs whose hp/be/system matches a glob pattern, and the references that they are held to.

        Raises:
            ScenarioError: No run matches.
        """
        self.units = [each for each in (_matching(unit, pattern) for unit in self.units) if each.runs]
        if not self.units:
            raise ScenarioError(f"--only {pattern} matches no run; runs are named hp/be/system (see --dry-run)")

    def _units_of(self, hp_id: str, same: list[Experiment]) -> Iterator[Unit]:
        requests = {each.requests or self.scenario.requests for each in same}
        pairs = [(each, entry) for each in same for entry in each.be]
        if len({self.be_id(entry) for _, entry in pairs}) < len(pairs):
            raise ScenarioError(f"experiments: {hp_id} is asked for twice beside the same be")
        if len(requests) > 1:
            raise ScenarioError(f"experiments: {hp_id} is asked for with different requests: {sorted(requests)}")
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
        has_alone = draw.randrange(len(pairs))
        for place, pair in enumerate(draw.sample(pairs, len(pairs))):
            be_id = self.be_id(pair[1])
            block = f"{number}/{be_id}"
            runs = []
            if (reference := f"{folder}/be-alone/{self._workload_id(pair[1])}") not in referenced:
                referenced.add(reference)
                runs.append(planned("be-alone", reference, pair, "be-alone", unhooked, block))
            if place == has_alone:
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
