"""What planners of services start from: the services of a case, what is measured of their models, and limits.

A planner is prepared once, with what is measured and with the limits, and then decides any number of cases. So it can
derive its own tables once. Its decision depends on the case alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .interference import Constants, Utilisation, alpha
from .latency import Latency
from .plans import Plan


@dataclass(frozen=True, slots=True)
class Service:
    """One service of a case.

    Attributes:
        model: the number of its model.
        rate: requests/s; 0 or more.
        objective_ms: the time in which a request must be answered.
    """

    model: int
    rate: float
    objective_ms: float


Case = Sequence[Service]


@dataclass(frozen=True)
class Model:
    """What is measured of one model.

    Attributes:
        number: the number that cases give.
        name: the name in the table of latencies.
        latency: the time of a batch by share, without overhead and without neighbours.
        overhead_ms: what forming a batch adds, by batch; the first value is of batch 1.
        memory_mb: GPU memory of the model itself.
        utilisation: how much of the L2 cache and of the memory's bandwidth it uses; None: not measured.
    """

    number: int
    name: str
    latency: Latency
    overhead_ms: tuple[float, ...]
    memory_mb: float
    utilisation: Utilisation | None = None

    def batch_ms(self, batch: int, share: float = 100, slowdown: float = 1.0) -> float:
        """Return the time of a batch beside neighbours that make the GPU's work `slowdown` times longer."""
        return self.latency.ms(batch, share) * slowdown + self.batch_overhead_ms(batch)

    def batch_overhead_ms(self, batch: int) -> float:
        """Return what forming a batch adds; beyond the last known batch, that of the last one."""
        return self.overhead_ms[min(batch, len(self.overhead_ms)) - 1]


@dataclass(frozen=True)
class Measured:
    """What is known of the GPU and of the models.

    Attributes:
        models: the models by number.
        gpu_memory_mb: the memory of one GPU that models may use.
        part_memory_mb: what each part with at least one model needs beside its models.
        max_batch: the largest batch that a planner may form.
        constants: how models on one GPU slow each other down; None: planners assume that they do not.
    """

    models: Mapping[int, Model]
    gpu_memory_mb: float
    part_memory_mb: float
    max_batch: int = 32
    constants: Constants | None = None

    def slowdown(self, mine: tuple[int, int, float], others: Sequence[tuple[int, int, float]]) -> float:
        """Return how many times longer a service's work on the GPU takes beside the GPU's other parts.

        Args:
            mine: the service's model, batch and share (percent).
            others: the same of each service on other parts of that GPU.
        """
        if self.constants is None:
            return 1.0
        found = [alpha(self.constants, self._load(*mine), self._load(*other)) for other in others]
        return max([1.0, *found])

    def _load(self, model: int, batch: int, share: float) -> tuple[float, float]:
        utilisation = self.models[model].utilisation
        return (0.0, 0.0) if utilisation is None else utilisation.at(batch, share)


@dataclass(frozen=True)
class Limits:
    """What a plan may use.

    Attributes:
        gpus: the number of GPUs.
        parts_per_gpu: at most so many parts on one GPU; None: the planner's own limit.
        part_sizes: the shares that a part may have, in percent; None: the planner's own.
    """

    gpus: int
    parts_per_gpu: int | None = None
    part_sizes: tuple[int, ...] | None = None


Decide = Callable[[Case], Plan]
Prepare = Callable[[Measured, Limits], Decide]
