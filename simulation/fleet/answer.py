"""The plan of a fleet as JSON (`orion.plan/1`), and its answer in one sentence."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orion.planning.fleet.fleets import TOLERANCE_H, Fleet
from orion.planning.fleet.plan import FleetPlan, plan

from .feel import Felt, apart, feel

SCHEMA = "orion.plan/1"
_DIGITS = 9


@dataclass(frozen=True)
class Answer:
    """A plan and what services feel under it.

    Attributes:
        plan: the plan.
        is_finish: whether the question was when jobs end.
        shared: what each service feels.
        apart: what each service feels on GPUs of its own; in the same order.
    """

    plan: FleetPlan
    is_finish: bool
    shared: tuple[Felt, ...]
    apart: tuple[Felt, ...]

    @property
    def saved(self) -> int | None:
        """GPUs that sharing saves; None if the plan leaves out work that GPUs of its own could run."""
        if self.plan.needed is not None and self.plan.needed > self.plan.gpus:
            return None
        left_out = {each.name for each in self.plan.unplaced} & set(self.plan.separate)
        return None if left_out else sum(self.plan.separate.values()) - self.plan.gpus

    @property
    def growth(self) -> tuple[str, float] | None:
        """The service whose p99 grows most, and the part by which it grows; None without requests."""
        found = [
            (after.name, after.p99_ms / before.p99_ms - 1)
            for before, after in zip(self.apart, self.shared, strict=True)
            if after.p99_ms and before.p99_ms
        ]
        return max(found, key=lambda each: each[1], default=None)


def answer(fleet: Fleet, seed: int, *, is_finish: bool) -> Answer:
    """Plan a fleet, and simulate its services."""
    found = plan(fleet, is_finish=is_finish)
    return Answer(
        found, is_finish, tuple(feel(found.fleet, found.placements, seed)),
        tuple(apart(found.fleet, found.separate, seed)),
    )  # fmt: skip


def plain(found: Answer) -> dict[str, Any]:
    """Return the answer as JSON."""
    asked = found.plan
    return {
        "schema": SCHEMA,
        "ask": "finish" if found.is_finish else "gpus",
        "separate": {"gpus": sum(asked.separate.values()), "workloads": asked.separate},
        "shared": {"gpus": asked.gpus, "needed": asked.needed, "bound": asked.bound, "layout": asked.layout},
        "saved": found.saved,
        "services": [
            {
                "name": after.name, "gpus": after.gpus, "p99_ms": after.p99_ms, "miss_ratio": after.miss_ratio,
                "separate": {"gpus": before.gpus, "p99_ms": before.p99_ms, "miss_ratio": before.miss_ratio},
            }
            for before, after in zip(found.apart, found.shared, strict=True)
        ],
        "placements": [_placement(asdict(each)) for each in asked.placements],
        "ends": [
            {"name": each.name, "job": each.copy, "end_h": None if each.end_h is None else round(each.end_h, _DIGITS)}
            for each in asked.ends
        ],
        "unplaced": [asdict(each) for each in asked.unplaced],
    }  # fmt: skip


def _placement(fields: dict[str, Any]) -> dict[str, Any]:
    fields["job"] = fields.pop("copy")
    fields["work_gpu_hours"] = fields.pop("work_gpu_h")
    return {name: round(value, _DIGITS) if isinstance(value, float) else value for name, value in fields.items()}


def sentence(found: Answer) -> str:
    """Return the answer in one sentence."""
    asked, separate = found.plan, sum(found.plan.separate.values())
    parts = [_gpus(found, separate)]
    if found.growth is not None:
        parts.append(_felt(*found.growth, is_only=len(found.shared) == 1))
    if asked.unplaced:
        names = [each.name for each in asked.unplaced]
        parts.append(f"{_listed(names)} {'does' if len(names) == 1 else 'do'} not fit")
    return "; ".join(parts) + "."


def at_hour(found: Answer, at_h: float, digits: int | None = None) -> str:
    """Return an hour as text; an hour after the plan's end is one of the next day."""
    hours = found.plan.fleet.hours
    is_next = at_h > hours + TOLERANCE_H
    shown_h = at_h - hours if is_next else at_h
    return (f"{shown_h:g}" if digits is None else f"{shown_h:.{digits}f}") + " next day" * is_next


def _felt(name: str, growth: float, *, is_only: bool) -> str:
    percent = round(growth * 100)
    if percent <= 0:
        return f"the p99 of {name} does not grow" if is_only else "no service's p99 grows"
    return f"the p99 of {name} grows by {percent} %" + ("" if is_only else ", and no other service's grows more")


def _gpus(found: Answer, separate: int) -> str:
    asked = found.plan
    count = f"{asked.gpus} GPU{'s' * (asked.gpus != 1)}"
    if found.is_finish:
        ends = [each.end_h for each in asked.ends if each.end_h is not None]
        if not ends:
            return f"{count}, no jobs"
        return f"{count} finish all jobs that fit by hour {at_hour(found, max(ends), 1)}"
    if found.saved is None:
        return f"{count} are not enough: sharing needs {asked.needed}, GPUs for each workload {separate}"
    return f"{count} instead of {separate}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"
