"""What to simulate, as checked values; reading.py makes them from the user's file.

The parts are those of `planning.serving.plans`, so a plan from a file and a plan from a planner are the same.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from orion.errors import Unreadable
from orion.planning.serving.latency import Latency
from orion.planning.serving.orion.services import BestEffort
from orion.planning.serving.plans import Assignment, Part, Plan
from orion.simulation.engine.batching import Engine

from .batches import NONE, Drop
from .rates import Rates
from .scenario import Lengths
from .slices import CHANGE_NS, SLICE_NS


@dataclass(frozen=True)
class Gpu:
    """One GPU; its memory is infinite if the file gives none."""

    name: str
    type: str = ""
    memory_gb: float = math.inf


@dataclass(frozen=True)
class Objective:
    """What a quantile of a service's requests must keep, in nanoseconds; infinity: no limit."""

    latency: float = math.inf
    first_token: float = math.inf
    output_token: float = math.inf
    quantile: float = 0.99


@dataclass(frozen=True)
class Service:
    """One service.

    Attributes:
        name: the service's name.
        objective: the latency that its requests must keep.
        memory_gb: the memory of one copy.
        latency: the times of batches; None for an engine.
        engine: what iterations take; None for batches.
        rates: requests/s over time; None if the arrivals come from a file.
        process: `poisson` or `uniform`.
        arrivals: the file of arrivals.
        lengths: where the requests' tokens come from, unless the file of arrivals has them.
        gpu_model: the GPU model on which the times were measured; empty: unknown.
        max_delay: for how many nanoseconds its server waits for a batch to fill, under a plan of the planner orion.
        runs_in: the name of the process that it shares with other services; None: it has one of its own.
    """

    name: str
    objective: Objective
    memory_gb: float = 0.0
    latency: Latency | None = None
    engine: Engine | None = None
    rates: Rates | None = None
    process: str = "poisson"
    arrivals: Path | None = None
    lengths: Lengths | None = None
    gpu_model: str = ""
    max_delay: float = 0.0
    runs_in: str | None = None

    def fits(self, gpu: Gpu) -> bool:
        """Return whether the times were measured on a GPU of this type, as far as both are known."""
        return not self.gpu_model or gpu.type.lower() in self.gpu_model.lower()


@dataclass(frozen=True)
class Setting:
    """A whole scenario.

    Attributes:
        source: the scenario's file, for sentences.
        gpus: the GPUs; the parts of a plan name them by position.
        services: the services.
        plan: who is served where; None: a planner decides.
        seconds: for how long requests arrive; infinity: until the files of arrivals end.
        seed: the random numbers.
        drop: the rule for drops.
        inputs: the files beside the scenario's file.
        slowdowns: by service and neighbour, how many times longer a batch takes beside that neighbour.
        slice_ns: how long one process has a GPU while another one waits, with the order `slices`.
        change_ns: for how long no process has the GPU when it goes from one process to another one.
        best_effort: work that a planner puts beneath the services.
    """

    source: Path
    gpus: Sequence[Gpu]
    services: Sequence[Service]
    plan: Plan | None
    seconds: float = math.inf
    seed: int = 0
    drop: Drop = NONE
    inputs: Sequence[Path] = ()
    slowdowns: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    slice_ns: float = SLICE_NS
    change_ns: float = CHANGE_NS
    best_effort: Sequence[BestEffort] = ()

    def in_one_process(self, services: Iterable[str]) -> bool:
        """Return whether services run in one process."""
        processes = {self._runs_in.get(name) for name in services}
        return len(processes) == 1 and None not in processes

    @cached_property
    def _runs_in(self) -> Mapping[str, str | None]:
        return {service.name: service.runs_in for service in self.services}

    def slowdown(self, plan: Plan, part: Part, service: str) -> float:
        """Return how many times longer a service's batches take because of the GPU's other parts."""
        factors = self.slowdowns.get(service, {})
        beside = [
            each.service
            for other in plan.parts
            if other.gpu == part.gpu and (other.share, other.copy) != (part.share, part.copy)
            for each in other.services
        ]
        return max((factors.get(name, 1.0) for name in beside), default=1.0)

    def times(self, plan: Plan, part: Part, assigned: Assignment) -> list[float]:
        """Return the nanoseconds of a batch of 0, 1, .. requests on a part; of an engine, only the first 0.

        Times that are whole nanoseconds but for the rounding of floats become whole.

        Raises:
            Unreadable: the profile gives no time for a batch, because it was measured at larger batches only.
        """
        (latency,) = (each.latency for each in self.services if each.name == assigned.service)
        times = [0.0]
        if latency is None:
            return times
        slowdown = self.slowdown(plan, part, assigned.service)
        for size in range(1, assigned.batch + 1):
            time = latency.ms(size, part.share) * 1e6 * slowdown
            if time <= 0:
                raise Unreadable(
                    f"{self.source}: the profile of the service {assigned.service} gives no time for a batch of "
                    f"{size}: measure a smaller batch"
                )
            times.append(float(round(time)) if abs(time - round(time)) < 1e-5 else time)
        return times
