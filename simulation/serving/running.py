"""A plan that runs now, read from the JSON object of `orion simulate serving` or from a scenario with a plan.

The next plan keeps as much of it as it can. GPUs that the scenario no longer has are left out; services that it no
longer has stay, because only the comparison with the next plan needs them.
"""

from pathlib import Path
from typing import Any

from orion.errors import Unreadable
from orion.planning.serving.plans import Assignment, Part, Plan
from orion.simulation import yaml_files
from orion.simulation.written import checked

from . import scenario
from .setting import Setting

_WANTED = "the --json output of orion simulate serving, or a scenario with a plan"


def read(path: Path, setting: Setting) -> Plan:
    """Return a running plan, with the scenario's numbers of GPUs.

    Raises:
        Unreadable: the file has no plan, or none on these GPUs; with a sentence.
    """
    plain = yaml_files.read(path, _WANTED)
    parts = plain.get("plan") if isinstance(plain, dict) else None
    if not isinstance(parts, list) or not parts:
        raise Unreadable(f"{path}: it has no plan: give {_WANTED}")
    plain = {"plan": [_without_needs(part) for part in parts]}
    written = checked(path, scenario.Running, plain)
    found = _parts(written, [gpu.name for gpu in setting.gpus])
    if not found:
        raise Unreadable(f"{path}: its plan has none of the GPUs of {setting.source}: give {_WANTED}")
    return Plan(found)


def moved(found: Plan, running: Plan) -> list[tuple[str, int]]:
    """Return the services of a plan, each with a GPU on which the running plan does not have it."""
    before = {(each.service, part.gpu) for part in running.parts for each in part.services}
    after = {(each.service, part.gpu) for part in found.parts for each in part.services}
    return sorted(after - before)


def _without_needs(part: Any) -> Any:
    return {name: value for name, value in part.items() if name != "needs"} if isinstance(part, dict) else part


def _parts(written: scenario.Running, gpus: list[str]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for part in written.plan:
        if part.gpu in gpus:
            gpu, share = gpus.index(part.gpu), round(part.share * 100 if part.share <= 1 else part.share)
            copy = sum((other.gpu, other.share) == (gpu, share) for other in parts)
            services = tuple(
                Assignment(each.name, each.batch, each.throughput or 1.0, each.max_delay.nanoseconds / 1e6)
                for each in part.services
            )
            parts.append(Part(gpu, share, copy, part.way or "part", part.order, services))
    return tuple(parts)
