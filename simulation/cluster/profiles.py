"""Reads profiles, which say how fast models train with each amount of CPUs and memory: JSON of Synergy's tables.

The file has an object for each set of profiles: `models`, and others for servers with more CPUs for each GPU
(`models-4`). In a set, `NAME_1` is the profile of the model NAME for one GPU. Profiles for more GPUs are not used, as
in Synergy. A profile has `iter_time`, `cpus`, `mem`, `speed` (MB/s of storage), `speedup` and `tput`: speeds for the
CPU points (rows) and memory points (columns) below. A speed of 0 or null was not measured. It is interpolated, and a
note says so.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orion.errors import Unreadable
from orion.planning.queues.demands import Profile

CPU_POINTS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 12.0, 24.0)
MEMORY_POINTS_GB = (20.83, 62.5, 125.0, 187.5, 250.0)
DEFAULT_SET = "models"

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Written(BaseModel):
    """One profile as the file has it."""

    model_config = ConfigDict(extra="ignore")

    iter_time: Positive
    cpus: Positive
    mem: Positive
    speedup: Positive
    speed: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    gpu_mem: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    gpu: str | None = None
    tput: list[list[float | None]] = []


@dataclass(frozen=True)
class Profiles:
    """The profiles of one set.

    Attributes:
        by_model: the profiles.
        notes: a sentence for each thing that a reader of results should know.
        gpu: the GPU model on which the profiles were measured; None: the file does not give it.
    """

    by_model: dict[str, Profile]
    notes: tuple[str, ...] = ()
    gpu: str | None = None


def read(path: Path, name: str = DEFAULT_SET) -> Profiles:
    """Read one set of profiles.

    Raises:
        Unreadable: with a sentence.
    """
    try:
        sets = json.loads(path.read_bytes())
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}: give a file of profiles") from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: this is no JSON ({error}): give a file of profiles") from error
    names = [key for key, value in sets.items() if isinstance(value, dict)] if isinstance(sets, dict) else []
    if name not in names:
        raise Unreadable(f"{path}: no set of profiles is called {name}: choose one of {', '.join(names) or '(none)'}")
    notes: list[str] = []
    written = {key.removesuffix("_1"): value for key, value in sets[name].items() if key.endswith("_1")}
    if not written:
        raise Unreadable(f"{path}: the set {name} has no profile of one GPU: name profiles MODEL_1")
    checked = {model: _checked(path, model, value) for model, value in written.items()}
    found = {model: _profile(path, model, each, notes) for model, each in checked.items()}
    gpus = sorted({each.gpu for each in checked.values() if each.gpu})
    if len(gpus) > 1:
        raise Unreadable(f"{path}: the profiles are of several GPU models ({', '.join(gpus)}): give those of one")
    return Profiles(found, tuple(notes), gpus[0] if gpus else None)


def _checked(path: Path, model: str, value: object) -> _Written:
    try:
        return _Written.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        reason = first["msg"].replace("Input should be", "it must be")
        raise Unreadable(
            f"{path}: the profile of {model} has a wrong {field or 'form'} ({reason}): correct it"
        ) from error


def _profile(path: Path, model: str, written: _Written, notes: list[str]) -> Profile:
    rows = written.tput
    if rows and (len(rows) != len(CPU_POINTS) or any(len(row) != len(MEMORY_POINTS_GB) for row in rows)):
        raise Unreadable(
            f"{path}: tput of {model} must have {len(CPU_POINTS)} rows of {len(MEMORY_POINTS_GB)} numbers: correct it"
        )
    if any(cell is not None and (not math.isfinite(cell) or cell < 0) for row in rows for cell in row):
        raise Unreadable(f"{path}: tput of {model} has a number that is negative or none: correct it")
    matrix, holes = _without_holes([[cell or math.nan for cell in row] for row in rows])
    if matrix is None:
        raise Unreadable(f"{path}: tput of {model} has no measured point: measure it, or leave tput out")
    if holes:
        notes.append(f"{path}: {holes} points of tput of {model} were not measured and are interpolated")
    return Profile(
        model, written.iter_time, written.cpus, written.mem, written.speedup, written.speed, written.gpu_mem,
        CPU_POINTS if rows else (), MEMORY_POINTS_GB if rows else (), matrix,
    )  # fmt: skip


def _without_holes(rows: Sequence[Sequence[float]]) -> tuple[tuple[tuple[float, ...], ...] | None, int]:
    """Interpolate the holes (`nan`) of a matrix between CPU points, then between memory points.

    Return the matrix and the number of holes; None instead of the matrix if it has only holes.
    """
    if not rows:
        return (), 0
    matrix = np.array(rows)
    holes = int(np.isnan(matrix).sum())
    for points, view in ((CPU_POINTS, matrix.T), (MEMORY_POINTS_GB, matrix)):
        for line in view:
            is_hole = np.isnan(line)
            if is_hole.any() and not is_hole.all():
                line[is_hole] = np.interp(np.array(points)[is_hole], np.array(points)[~is_hole], line[~is_hole])
    if np.isnan(matrix).any():
        return None, holes
    return tuple(tuple(map(float, row)) for row in matrix), holes
