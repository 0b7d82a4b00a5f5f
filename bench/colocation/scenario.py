"""The scenario file: the hp and be workloads to measure, and the systems under which they share a GPU.

Checks are strict: an unknown field is rejected by name, in one sentence, before anything starts.
"""

import json
import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from orion.bench import scenario_files
from orion.bench.colocation.systems import STANDARD, System, in_threads, needs_mps
from orion.errors import Unreadable

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Load(_Strict):
    """A workload by name, with its options."""

    workload: str = Field(min_length=1)
    options: dict[str, Any] = {}


class BestEffort(Load):
    """One be entry: a workload that one or several equal processes run."""

    count: int = Field(default=1, ge=1, le=64)
    requests: list[Annotated[float, Field(ge=0.001, le=1)]] = []
    """ Requests of GPU time of the be slots under Orion, one for each process; empty: none has a request. """

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if self.requests and len(self.requests) != self.count:
            raise ValueError(f"there are {len(self.requests)} requests for a count of {self.count}")
        return self


class _OpenLoop(_Strict):
    load: float | None = Field(default=None, gt=0, lt=1)
    """ Share of hp's capacity when hp runs alone; a closed loop in the same round measures the capacity. """

    rate: float | None = Field(default=None, gt=0)
    """ Requests a second. """


class Paced(_OpenLoop):
    """Requests at random times (a Poisson process), or evenly spaced."""

    kind: Literal["poisson", "uniform"]

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.load is None) == (self.rate is None):
            raise ValueError("give either load (a share of hp's capacity alone) or rate (requests a second)")
        return self


class Trace(_OpenLoop):
    """Recorded arrivals. They repeat if they are too few; a load or a rate scales them."""

    kind: Literal["trace"]
    file: str | None = None
    """ File of numbers in seconds, one per line or a JSON list. Relative to the scenario's folder. """

    values: Literal["times", "gaps"] = "times"
    """ Whether the numbers of the file are arrival times, or gaps between arrivals. """

    gaps: list[Annotated[float, Field(ge=0)]] = []
    """ The gaps themselves, instead of a file; a resolved scenario uses this form. """

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.file) == bool(self.gaps):
            raise ValueError("give either file or gaps")
        if self.gaps and not 0 < sum(self.gaps) < math.inf:
            raise ValueError(f"the gaps add up to {sum(self.gaps):g} seconds: give gaps with a positive, finite sum")
        if self.load is not None and self.rate is not None:
            raise ValueError("give either load or rate, not both")
        return self


class Closed(_Strict):
    """A closed loop, for training: the next iteration starts when the previous one ends; iteration times count."""

    kind: Literal["closed"]


Arrivals = Annotated[Paced | Trace | Closed, Field(discriminator="kind")]


class Experiment(_Strict):
    """One hp workload, and the be entries that run beside it one after another."""

    hp: Load
    arrivals: Arrivals
    requests: int | None = Field(default=None, ge=1)
    """ Replaces the scenario's `requests`. """

    rounds: int | None = Field(default=None, ge=1)
    """ Measure only this many of the scenario's rounds. """

    priority: int = 0
    """ Experiments with a higher priority run first, so an interrupted measurement contains them. """

    be: list[BestEffort] = Field(min_length=1)
    systems: list[str] = Field(min_length=1)
    ceiling: list[str] = []
    """ Systems in mode mps or threads under which hp and be also run in closed loops. From their speeds the report
    computes the hp + be that a queueing model reaches. """


class Scenario(_Strict):
    """A whole file."""

    name: str
    rounds: int = Field(default=3, ge=1)
    requests: int = Field(default=1000, ge=1)
    """ Measured hp requests of a run. """

    lead_seconds: float = Field(default=1.0, ge=0)
    """ Length of the lead-in, which is not measured. """

    closed_loop_seconds: float = Field(default=3.0, gt=0)
    """ Length of the closed loop of hp alone, which measures hp's capacity and service time. """

    be_alone_seconds: float = Field(default=5.0, gt=0)
    """ Length of the run of be alone, without its lead-in. """

    seed: int = 1
    systems: dict[str, System] = {}
    experiments: list[Experiment] = Field(min_length=1)

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError("only letters, digits and . + _ - are allowed, since folders have these names")
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
            for name in (*experiment.systems, *experiment.ceiling):
                if in_threads(known[name]) and any(entry.options.get("ranks", 1) != 1 for entry in experiment.be):
                    raise ValueError(f"experiments[{number}].be: under {name!r}, be is a thread, so it has no ranks")
            for name in experiment.ceiling:
                if not (needs_mps(known[name]) or in_threads(known[name])):
                    raise ValueError(
                        f"experiments[{number}].ceiling: {name!r} overlaps nothing: its mode is neither mps nor threads"
                    )
        return self

    @property
    def ranks(self) -> int:
        """Return the number of GPUs that the largest job needs: `ranks` of a workload's options."""
        named = (entry.options.get("ranks", 1) for each in self.experiments for entry in each.be)
        return max((ranks for ranks in named if isinstance(ranks, int)), default=1)  # others are refused by name later

    @property
    def workloads(self) -> list[str]:
        """Return the names of all workloads, each once."""
        return list(dict.fromkeys(load.workload for each in self.experiments for load in (each.hp, *each.be)))

    def resolved(self, folder: Path) -> "Scenario":
        """Return the scenario with the definitions of all used systems, and with traces inline.

        Args:
            folder: Folder of the trace files.
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
        raise Unreadable(f"{where}: {path} cannot be read as a list of numbers ({error})") from error
    gaps = times if arrivals.values == "gaps" else [b - a for a, b in zip([0.0, *times], times, strict=False)]
    try:
        rest = arrivals.model_dump(exclude={"file", "values", "gaps"})
        return Trace.model_validate({**rest, "gaps": gaps})
    except ValidationError as error:
        raise Unreadable(f"{where}: {path}: {scenario_files.first_fault(error)} (values: {arrivals.values})") from error


def read(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        Unreadable: The file cannot be read, or is invalid.
    """
    return scenario_files.read(
        path,
        Scenario,
        "a scenario as YAML, such as those in bench/scenarios",
        "is not a scenario: a scenario has the fields name: and experiments:",
    )


def write(scenario: Scenario) -> str:
    """Return a scenario as YAML that `read` accepts."""
    fields = scenario.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(fields, sort_keys=False, width=120)
