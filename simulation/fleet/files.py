"""Reads FLEET.yaml: GPUs, services with a day's rates, batches with a window, training with a deadline.

    gpus: {type: NVIDIA H200, memory: 141, atMost: 60}
    services: [{name: chat, service: 8ms, rate: [[0, 50], [8, 400]], objective: 60ms, memory: 40}]
    batch: [{name: nightly, work: 30, between: [0, 6], memory: 60}]
    training: [{name: tune, count: 4, gpus: 2, work: 20, memory: 80, by: 24}]

A window may go over midnight, such as [22, 6]: in a plan of 24 hours, which is a day that repeats, it has a part at the
begin and a part at the end.

Memory is GB, or an amount such as 40Gi. Work is GPU-hours on GPUs without other work. Rates that are given for one day
repeat each day; from midnight to the first hour, the last rate of the day holds.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from orion.crds.durations import Duration
from orion.crds.profile_file import parse_profile
from orion.errors import Unreadable
from orion.planning.fleet.fleets import Batch, Fleet, Service, Training
from orion.planning.sharing.harvest import Tenant
from orion.simulation import yaml_files
from orion.simulation.written import Gigabytes, SomeGigabytes, Written, checked

DAY_H = 24.0
MOST_HOURS = 24.0 * 31
MOST_JOBS = 100_000


def _seconds(value: Any) -> float:
    return Duration.read(value).nanoseconds / 1e9


def _some_seconds(value: Any) -> float:
    if (seconds := _seconds(value)) <= 0:
        raise ValueError("must be longer than 0")
    return seconds


Seconds = Annotated[float, BeforeValidator(_seconds)]
SomeSeconds = Annotated[float, BeforeValidator(_some_seconds)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=0, le=MOST_JOBS, strict=True)]
Some = Annotated[int, Field(ge=1, le=MOST_JOBS, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=253)]


class _Gpus(Written):
    type: str | None = None
    memory: SomeGigabytes
    at_most: Count | None = Field(None, alias="atMost")


class _Sharing(Written):
    switch: Seconds = Tenant.switch_s
    hp_per_gpu: Some = Field(1, alias="hpPerGpu")


class _Service(Written):
    name: Name
    service: SomeSeconds | None = None
    profile: str | None = None
    rate: list[tuple[NotNegative, NotNegative]] = Field(min_length=1)
    objective: SomeSeconds
    memory: Gigabytes = 0.0

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.service is None) == (self.profile is None):
            raise ValueError("give either service (the time of one request) or profile (a GPUProfile's file)")
        hours = [hour for hour, _ in self.rate]
        if hours != sorted(set(hours)):
            raise ValueError("the hours of rate must ascend")
        return self


class _Batch(Written):
    name: Name
    work: NotNegative
    between: tuple[NotNegative, NotNegative]
    memory: Gigabytes = 0.0

    @model_validator(mode="after")
    def _window(self) -> Self:
        begin, end = self.between
        if end == begin or (end < begin and begin >= DAY_H):
            raise ValueError(
                f"between ends at {end:g}, and does not begin before: give [begin, later end], or hours of a day such "
                "as [22, 6]"
            )
        return self

    @property
    def end(self) -> float:
        """The window's end, later than its begin: 30 of [22, 6]."""
        return self.between[1] + (DAY_H if self.between[1] < self.between[0] else 0.0)


class _Training(Written):
    name: Name
    count: Count = 1
    gpus: Some = 1
    work: NotNegative
    memory: Gigabytes = 0.0
    by: Annotated[NotNegative, Field(gt=0)] | None = None


class File(Written):
    """The whole file."""

    gpus: _Gpus
    hours: Annotated[NotNegative, Field(gt=0, le=MOST_HOURS)] = DAY_H
    seed: Annotated[int, Field(ge=0, strict=True)] = 1
    sharing: _Sharing = Field(default_factory=lambda: _Sharing.model_validate({}))
    services: list[_Service] = Field(default_factory=list)
    batch: list[_Batch] = Field(default_factory=list)
    training: list[_Training] = Field(default_factory=list)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        names = [each.name for each in self.services]
        names += [each.name for each in self.batch]
        names += [each.name for each in self.training]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} occurs twice: give each workload a name of its own")
        for batch in self.batch:
            if batch.end > self.hours and not (self.hours == DAY_H and batch.end > batch.between[1]):
                raise ValueError(
                    f"{batch.name}'s window ends at {batch.end:g}, after hours ({self.hours:g}): raise hours"
                )
        for training in self.training:
            if training.by is not None and training.by > self.hours:
                raise ValueError(f"{training.name}'s by is {training.by:g}, after hours ({self.hours:g}): raise hours")
        if sum(each.count for each in self.training) > MOST_JOBS:
            raise ValueError(f"training has more than {MOST_JOBS} jobs: give fewer")
        return self


def parse(path: Path) -> dict[str, Any]:
    """Return the fields of a fleet's file, unchecked.

    Raises:
        Unreadable: with a sentence.
    """
    found = yaml_files.read(path, "a fleet as YAML")
    if isinstance(found, dict) and set(found) == {"fleet"}:
        found = found["fleet"]
    if not isinstance(found, dict):
        raise Unreadable(f"{path}: a fleet has the fields {', '.join(_names(File))}: give these")
    return found


def read(path: Path, fields: dict[str, Any]) -> tuple[Fleet, File]:
    """Return the fleet of a file's fields.

    Args:
        path: the file; profiles are found relative to its folder.
        fields: as `parse` returns them.

    Raises:
        Unreadable: with a sentence.
    """
    written = checked(path, File, fields)
    hours = written.hours
    return Fleet(
        written.gpus.memory, written.gpus.at_most, hours, written.sharing.switch, written.sharing.hp_per_gpu,
        tuple(
            Service(each.name, _time_s(path, written, each), _steps(each.rate, hours), each.objective, each.memory)
            for each in written.services
        ),
        tuple(Batch(each.name, each.work, each.between[0], each.end, each.memory) for each in written.batch),
        tuple(
            Training(each.name, each.count, each.gpus, each.work, each.memory, each.by or hours)
            for each in written.training
        ),
    ), written  # fmt: skip


def _time_s(path: Path, written: File, service: _Service) -> float:
    """Return the time of one request on a whole GPU."""
    if service.service is not None:
        return service.service
    place = path.parent / (service.profile or "")
    try:
        spec = parse_profile(place.read_text(encoding="utf-8"), str(place)).spec
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "this is no text"
        raise Unreadable(f"{place}: {reason}: give {service.name}'s GPUProfile") from error
    wanted, measured = written.gpus.type, spec.gpu.model
    if wanted and measured and wanted.lower() not in measured.lower() and measured.lower() not in wanted.lower():
        raise Unreadable(
            f"{place}: it was measured on {measured}, and gpus.type is {wanted}: give a profile of {wanted}"
        )
    whole = [each for each in spec.latency or [] if each.sm_share == 1]
    if not whole:
        raise Unreadable(f"{place}: it has no latency at smShare 1: give service, or measure the latency")
    one = min(whole, key=lambda each: each.batch)
    return one.median_ns / 1e9


def _steps(rate: Sequence[tuple[float, float]], hours: float) -> tuple[tuple[float, float], ...]:
    """Return the rates from 0 to the plan's end, each with its begin."""
    if rate[-1][0] >= DAY_H:  # more than a day is given: nothing repeats
        steps = [*rate] if rate[0][0] == 0 else [(0.0, 0.0), *rate]
    else:
        day = [*rate] if rate[0][0] == 0 else [(0.0, rate[-1][1]), *rate]
        days = range(math.ceil(hours / DAY_H))
        steps = [(number * DAY_H + hour, value) for number in days for hour, value in day]
    kept: list[tuple[float, float]] = []
    for hour, value in steps:
        if hour < hours and (not kept or kept[-1][1] != value):
            kept.append((hour, value))
    return tuple(kept)


def _names(model: type[BaseModel]) -> list[str]:
    return [each.alias or name for name, each in model.model_fields.items()]
