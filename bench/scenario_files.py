"""Reads the scenario files of benchmarks; each fault becomes one sentence with the file and the field."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orion.errors import Unreadable
from orion.simulation import yaml_files

ScenarioT = TypeVar("ScenarioT", bound=BaseModel)


def read(path: Path, model: type[ScenarioT], wanted: str, otherwise: str) -> ScenarioT:
    """Return the scenario of a file.

    Args:
        path: the file.
        model: the scenario's fields.
        wanted: what the file should hold, for the sentence about a file that cannot be read.
        otherwise: says behind the path what is wrong if the file has no fields at all.

    Raises:
        Unreadable: the file cannot be read, is no YAML, or has a wrong field.
    """
    fields = yaml_files.read(path, wanted)
    if not isinstance(fields, dict):
        raise Unreadable(f"{path} {otherwise}")
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise Unreadable(f"{path}: {first_fault(error)}") from error


def check_names(names: Sequence[str]) -> None:
    """Raise ValueError if two settings have one name: the file of a setting's run has that name."""
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise ValueError(f"two settings have the name {twice[0]}, so one of them would not be measured; rename it")


def first_fault(error: ValidationError, within: tuple[str, ...] = ()) -> str:
    """Return the first fault as a sentence, with the field's path in the file.

    Args:
        error: error of the whole file, or of a part of it.
        within: path of that part.
    """
    first = error.errors()[0]
    path = (*within, *first["loc"])
    kinds = {"alone", "timeslice", "mps", "orion", "plain-streams", "foreign", "poisson", "uniform", "trace", "closed"}
    field = ""
    for depth, part in enumerate(path):
        tag = part in kinds and depth > 0 and not (depth == 1 and path[0] == "systems")
        field += "" if tag else f"[{part}]" if isinstance(part, int) else f".{part}"
    problem = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    if first["type"] == "extra_forbidden":
        problem = "there is no such field"
    given = "" if first["type"] in ("missing", "extra_forbidden", "value_error") else f", not {first['input']!r}"
    return f"{field.lstrip('.')}: {problem}{given}".removeprefix(": ")
