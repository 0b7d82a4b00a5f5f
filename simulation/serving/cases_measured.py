"""Reads what is measured of a GPU and of models: a table of latencies, facts.json and, if given, utilisation.

The table has lines `model,share,batch,latency_ms`, with or without a header. A share is in percent. Shares and batches
that one model has and another lacks are holes: they are interpolated, and a note says so. facts.json holds memory and
the overhead of batches, by the numbers of models. The numbers are those of glet.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orion.errors import Unreadable
from orion.planning.serving.cases import Measured, Model
from orion.planning.serving.interference import RTX_2080_TI, Utilisation
from orion.planning.serving.latency import Latency
from orion.simulation.traces.numbers import number, shown, whole
from orion.simulation.traces.text import numbered

NAMES = (
    "lenet1", "lenet2", "lenet3", "lenet4", "lenet5", "lenet6", "googlenet", "resnet50", "ssd-mobilenetv1", "vgg16",
    "mnasnet1_0", "mobilenet_v2", "densenet161", "bert",
)  # fmt: skip
""" glet's models, in the order of their numbers. """
MAX_BATCH = 32

Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_INPUT = re.compile(r"(\w+)(?:\s*\((\S+)\s+\S+?:\s*(\w+)\))?")
_PRODUCT = re.compile(r"([\d.]+)(?:\s*x\s*([\d.]+))?")


class _Facts(BaseModel):
    """facts.json as it is written."""

    model_config = ConfigDict(extra="forbid")

    unit: str = ""
    overhead: dict[str, Annotated[list[Figure], Field(min_length=1)]]
    model_input: dict[str, str]
    slo_ms: dict[str, Figure] = {}
    memory_mb: dict[str, Figure | str]


@dataclass(frozen=True)
class Read:
    """What the files hold, and a sentence for each thing that a reader of results should know."""

    measured: Measured
    notes: tuple[str, ...]


def read(table: Path, facts: Path, utilisation: Path | None) -> Read:
    """Read the files.

    Raises:
        Unreadable: with the file, the line where there is one, and the reason.
    """
    notes: list[str] = []
    latencies = _without_holes(table, _table(table), notes)
    written = _facts(facts)
    try:
        overheads, memory = _overheads(written), _by_number(written.memory_mb)
        gpu_memory_mb, part_memory_mb = _gpu_memory(written)
    except ValueError as error:
        raise Unreadable(f"{facts}: {error}") from error
    used = _utilisation(utilisation) if utilisation is not None else {}
    models = {}
    for key, name in enumerate(NAMES):
        row = next((each for each in _aliases(name) if each in latencies), None)
        if row is None or key not in memory or key not in overheads:
            continue
        load = next((used[each] for each in _aliases(name) if each in used), None)
        if utilisation is not None and load is None:
            raise Unreadable(f"{utilisation}: model {name} has no line: measure it, or leave --interference out")
        models[key] = Model(key, name, Latency(latencies[row]), overheads[key], float(memory[key]), load)
    if not models:
        raise Unreadable(f"{table} and {facts} have no model in common: the models are {', '.join(NAMES)}")
    constants = None if utilisation is None else RTX_2080_TI
    return Read(Measured(models, gpu_memory_mb, part_memory_mb, MAX_BATCH, constants), tuple(notes))


def _aliases(name: str) -> tuple[str, ...]:
    """Return the names under which files may list a model; the six lenets are alike."""
    return (name, "lenet1", "lenet") if name.startswith("lenet") else (name,)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    for line, text in numbered(path):
        cells = [cell.strip() for cell in text.split(",")]
        if cells[0].lower() == columns[0] and line == 1:
            continue
        if len(cells) != len(columns):
            raise Unreadable(f"{path}, line {line}: it has {len(cells)} columns; write {','.join(columns)}")
        yield line, cells


def _table(path: Path) -> dict[str, dict[int, dict[int, float]]]:
    found: dict[str, dict[int, dict[int, float]]] = {}
    for line, (model, share_text, batch_text, time_text) in _rows(path, ("model", "share", "batch", "latency_ms")):
        try:
            share, batch = whole(share_text, "the share", 1), whole(batch_text, "the batch", 1)
            time_ms = number(time_text, "the latency")
            if share > 100:
                raise ValueError(f"the share is {share} %, and a GPU has 100 %")
            if not time_ms:
                raise ValueError("the latency is 0 ms, and no batch takes no time")
            if batch in found.setdefault(model, {}).setdefault(share, {}):
                raise ValueError(f"{model} at share {share} and batch {batch} occurs twice")
        except ValueError as error:
            raise Unreadable(f"{path}, line {line}: {error}: correct it") from error
        found[model][share][batch] = time_ms
    if not found:
        raise Unreadable(f"{path} has no line: write model,share,batch,latency_ms")
    return found


def _without_holes(
    path: Path, found: Mapping[str, Mapping[int, Mapping[int, float]]], notes: list[str]
) -> dict[str, dict[int, dict[int, float]]]:
    """Return the table with the same shares for each model, and the same batches for each share of a model."""
    shares = sorted({share for points in found.values() for share in points})
    whole_table: dict[str, dict[int, dict[int, float]]] = {}
    for model, points in found.items():
        latency, batches = Latency(points), sorted({batch for times in points.values() for batch in times})
        whole_table[model] = {
            share: {batch: points.get(share, {}).get(batch) or latency.ms(batch, share) for batch in batches}
            for share in shares
        }
        holes = len(shares) * len(batches) - sum(map(len, points.values()))
        if holes:
            notes.append(f"{path}: {holes} points of {model} were not measured and are interpolated")
        if any(time_ms <= 0 for times in whole_table[model].values() for time_ms in times.values()):
            raise Unreadable(f"{path}: {model} has too few points to interpolate its holes: measure more batches")
    return whole_table


def _facts(path: Path) -> _Facts:
    try:
        return _Facts.model_validate(json.loads(path.read_bytes()))
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}: give a file of facts") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "form"
        known = ", ".join(_Facts.model_fields)
        raise Unreadable(f"{path}: {field} is wrong ({first['msg']}): the fields are {known}") from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path}: this is no JSON ({error}): give a file of facts") from error


def _numbers(text: str) -> list[int]:
    """Return the numbers of models in `0-5,7`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise ValueError(f"{shown(text)} names no models: write numbers such as 0-5,7")
        found += range(int(first), min(int(last or first), len(NAMES)) + 1)
    if max(found, default=len(NAMES)) >= len(NAMES):
        raise ValueError(f"{shown(text)} names a model that does not exist: models are 0 to {len(NAMES) - 1}")
    return found


def _by_number(memory: Mapping[str, float | str]) -> dict[int, float]:
    found: dict[int, float] = {}
    for text, value in memory.items():
        if text in ("per_new_partition", "gpu_usable"):
            continue
        if isinstance(value, str):
            raise ValueError(f"memory_mb of {text} is {shown(value)}: write a number")
        found |= dict.fromkeys(_numbers(text), value)
    return found


def _overheads(facts: _Facts) -> dict[int, tuple[float, ...]]:
    """Return each model's overhead; a value such as `image_224 (0-5 lenet: lenet)` has an exception in brackets."""
    found: dict[int, tuple[float, ...]] = {}
    for text, value in facts.model_input.items():
        match = _INPUT.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"model_input of {text} is {shown(value)}: write the name of an overhead")
        name, exception, other = match.groups()
        for key in _numbers(text):
            chosen = other if exception and key in _numbers(exception) else name
            if chosen not in facts.overhead:
                raise ValueError(f"overhead has no {shown(chosen)}: choose one of {', '.join(facts.overhead)}")
            found[key] = tuple(facts.overhead[chosen])
    return found


def _gpu_memory(facts: _Facts) -> tuple[float, float]:
    """Return the memory of a GPU that models may use, and what a part needs beside its models, in MB."""
    usable, part = facts.memory_mb.get("gpu_usable"), facts.memory_mb.get("per_new_partition", 0.0)
    match = _PRODUCT.fullmatch(str(usable).strip())
    if match is None or isinstance(part, str):
        raise ValueError("memory_mb needs gpu_usable (such as 0.9 x 11000) and per_new_partition, both in MB")
    return round(number(match[1], "gpu_usable") * number(match[2] or "1", "gpu_usable"), 6), part


def _utilisation(path: Path) -> dict[str, Utilisation]:
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for line, (model, batch_text, l2, dram) in _rows(path, ("model", "batch", "l2", "dram")):
        try:
            batch, values = whole(batch_text, "the batch", 1), (number(l2, "l2"), number(dram, "dram"))
            if max(values) > 1:
                raise ValueError(f"{model} uses {max(values):g} of the GPU, and 1 is all of it")
        except ValueError as error:
            raise Unreadable(f"{path}, line {line}: {error}: correct it") from error
        if batch & (batch - 1) == 0:
            found.setdefault(model, {})[batch] = values
    for model, points in found.items():
        missing = [batch for batch in (1, 2, 4, 8, 16, 32) if batch not in points]
        if missing:
            raise Unreadable(f"{path}: {model} has no line for batch {missing[0]}: measure it")
    return {model: Utilisation(points) for model, points in found.items()}
