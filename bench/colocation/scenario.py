"""The scenario file: what is measured, beside what, under which systems.

Read strictly: a field that does not exist is refused by its name, in one sentence, before anything starts.
"""

import json
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from orion.bench.colocation.systems import STANDARD, System, in_threads, needs_mps

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")


class ScenarioError(ValueError):
    """A scenario that cannot be; one sentence that names the file and the field."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Load(_Strict):
    """A workload by name, with its options."""

    workload: str = Field(min_length=1)
    options: dict[str, Any] = {}


class BestEffort(Load):
    """One entry of be: a workload, by one process or by several equal ones."""

    count: int = Field(default=1, ge=1, le=64)
    weights: list[Annotated[float, Field(gt=0)]] = []
    """ Of the be slots under Orion, one each; empty: the agent's default for all. """

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if self.weights and len(self.weights) != self.count:
            raise ValueError(f"there are {len(self.weights)} weights for a count of {self.count}")
        return self


class _OpenLoop(_Strict):
    load: float | None = Field(default=None, gt=0, lt=1)
    """ Share of hp's solo capacity, as its closed loop shows it in the same round. """

    rate: float | None = Field(default=None, gt=0)
    """ Requests a second. """


class Paced(_OpenLoop):
    """Requests at random moments (a Poisson process), or evenly spaced."""

    kind: Literal["poisson", "uniform"]

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.load is None) == (self.rate is None):
            raise ValueError("either load (a share of the solo capacity) or rate (requests a second) has to be given")
        return self


class Trace(_OpenLoop):
    """Recorded arrivals, repeated where they are too few; with a load or a rate, stretched to it."""

    kind: Literal["trace"]
    file: str | None = None
    """ One number a line, or a JSON list; seconds. Relative to the scenario's own folder. """

    values: Literal["times", "gaps"] = "times"
    """ What the numbers of the file are. """

    gaps: list[Annotated[float, Field(ge=0)]] = []
    """ The trace itself in place of a file; a resolved scenario has it so. """

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.file) == bool(self.gaps):
            raise ValueError("either file or gaps has to be given")
        if self.gaps and not 0 < sum(self.gaps) < math.inf:
            raise ValueError(f"gaps that add up to {sum(self.gaps):g} seconds are no trace")
        if self.load is not None and self.rate is not None:
            raise ValueError("load and rate exclude each other")
        return self


class Closed(_Strict):
    """The next request when the last one has been answered: training, measured by the time of its iterations."""

    kind: Literal["closed"]


Arrivals = Annotated[Paced | Trace | Closed, Field(discriminator="kind")]


class Experiment(_Strict):
    """One hp workload beside several be workloads in turn."""

    hp: Load
    arrivals: Arrivals
    requests: int | None = Field(default=None, ge=1)
    """ In place of the scenario's. """

    rounds: int | None = Field(default=None, ge=1)
    """ Only so many of the scenario's. """

    priority: int = 0
    """ Rounds of experiments with a higher one are given out first: a measurement that is cut short has those. """

    be: list[BestEffort] = Field(min_length=1)
    systems: list[str] = Field(min_length=1)
    ceiling: list[str] = []
    """ Systems in mps or threads under which hp and be are also run in closed loops: the speeds from which the report
    computes how much hp + be a perfect scheduler could reach. """


class Scenario(_Strict):
    """A whole file."""

    name: str
    rounds: int = Field(default=3, ge=1)
    requests: int = Field(default=1000, ge=1)
    """ hp requests of a run that count. """

    lead_seconds: float = Field(default=1.0, ge=0)
    """ Before anything counts. """

    closed_loop_seconds: float = Field(default=3.0, gt=0)
    """ Length of hp's closed loop, from which its solo capacity and service time come. """

    be_alone_seconds: float = Field(default=5.0, gt=0)
    """ Length of the run of be alone, its lead left out. """

    seed: int = 1
    systems: dict[str, System] = {}
    experiments: list[Experiment] = Field(min_length=1)

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError("letters, digits and . + _ - are allowed, since folders are named so")
        return name

    @field_validator("systems")
    @classmethod
    def _are_names(cls, defined: dict[str, System]) -> dict[str, System]:
        for name in defined:
            cls._is_a_name(name)
        return defined

    @model_validator(mode="after")
    def _systems_exist(self) -> Self:
        known = {**STANDARD, **self.systems}
        for number, experiment in enumerate(self.experiments):
            for name in (*experiment.systems, *experiment.ceiling):
                if name not in known:
                    raise ValueError(
                        f"experiments[{number}].systems: {name!r} is neither defined under systems nor one of "
                        f"{', '.join(STANDARD)}"
                    )
            for name in experiment.ceiling:
                if not (needs_mps(known[name]) or in_threads(known[name])):
                    raise ValueError(
                        f"experiments[{number}].ceiling: {name!r} overlaps nothing: neither mps nor threads"
                    )
        return self

    def resolved(self, folder: Path) -> "Scenario":
        """Return the scenario with nothing left to look up: systems that are used, traces inline.

        Args:
            folder: Where the files of traces are.
        """
        used = list(
            dict.fromkeys(name for each in self.experiments for name in ("alone", *each.systems, *each.ceiling))
        )
        known = {**STANDARD, **self.systems}
        experiments = [
            each.model_copy(update={"arrivals": _inlined(each.arrivals, folder, number)})
            for number, each in enumerate(self.experiments)
        ]
        return self.model_copy(update={"systems": {name: known[name] for name in used}, "experiments": experiments})


def _inlined(arrivals: Arrivals, folder: Path, number: int) -> Arrivals:
    if not isinstance(arrivals, Trace) or arrivals.file is None:
        return arrivals
    path, where = folder / arrivals.file, f"experiments[{number}].arrivals.file"
    try:
        text = path.read_text()
        numbers = json.loads(text) if text.lstrip().startswith("[") else text.split()
        times = [float(number) for number in numbers]
    except (OSError, ValueError, TypeError) as error:
        raise ScenarioError(f"{where}: {path} is no list of numbers ({error})") from error
    gaps = times if arrivals.values == "gaps" else [b - a for a, b in zip([0.0, *times], times, strict=False)]
    try:
        rest = arrivals.model_dump(exclude={"file", "values", "gaps"})
        return Trace.model_validate({**rest, "gaps": gaps})
    except ValidationError as error:
        raise ScenarioError(f"{where}: {path}: {first_fault(error)} (values: {arrivals.values})") from error


def read(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ScenarioError: One sentence.
    """
    try:
        fields = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(fields, dict):
        raise ScenarioError(f"{path} holds no scenario: its fields begin with name: and experiments:")
    try:
        return Scenario.model_validate(fields)
    except ValidationError as error:
        raise ScenarioError(f"{path}: {first_fault(error)}") from error


def first_fault(error: ValidationError, within: tuple[str, ...] = ()) -> str:
    """Say what is wrong first, by the field's path as it stands in the file.

    Args:
        error: of the whole file, or of a part of it.
        within: the path of that part.
    """
    first = error.errors()[0]
    path = (*within, *first["loc"])
    kinds = {"alone", "timeslice", "mps", "orion", "plain-streams", "foreign", "poisson", "uniform", "trace", "closed"}
    place = ""
    for depth, part in enumerate(path):
        tag = part in kinds and depth > 0 and not (depth == 1 and path[0] == "systems")
        place += "" if tag else f"[{part}]" if isinstance(part, int) else f".{part}"
    reported = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    if first["type"] == "extra_forbidden":
        reported = "there is no such field"
    given = "" if first["type"] in ("missing", "extra_forbidden", "value_error") else f", not {first['input']!r}"
    return f"{place.lstrip('.')}: {reported}{given}".removeprefix(": ")


def write(scenario: Scenario) -> str:
    """Return a scenario as YAML that `read` takes."""
    fields = scenario.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(fields, sort_keys=False, width=120)
