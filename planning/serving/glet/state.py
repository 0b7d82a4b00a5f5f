"""What glet's scheduler changes while it decides one case: the services that are left, and the parts of GPUs.

A decision makes its own state, and nothing of it stays.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..cases import Measured
from .float32 import single
from .times import Load, Times

IGNORED_RATE = 15
""" glet counts a service as served if at most this rate is left. """


@dataclass(slots=True)
class Task:
    """A service that is to be placed.

    Attributes:
        model: the number of its model.
        rate: the requests/s that are not placed yet.
        objective_ms: whole milliseconds.
        lost: the requests/s that parts lost through this service's interference.
    """

    model: int
    rate: int
    objective_ms: int
    lost: int = 0


@dataclass(slots=True)
class Placed:
    """A service on a part; `rate` is what was left of the service when it came there."""

    model: int
    rate: int
    objective_ms: int
    batch: int
    throughput: float


@dataclass(slots=True, eq=False)
class Part:
    """A part of a GPU, or of an estimate. In an estimate, `gpu` is the number of the part."""

    gpu: int
    share: int
    copy: int = 0
    duty_ms: float = 0.0
    occupancy: float = 0.0
    services: list[Placed] = field(default_factory=list)

    def is_same(self, other: "Part") -> bool:
        """Return whether two parts have the same place."""
        return self.gpu == other.gpu and self.share == other.share and self.copy == other.copy


@dataclass(slots=True)
class Gpu:
    """A GPU, the memory that is used, and the parts (share, copy) that were ever loaded."""

    parts: list[Part]
    used_mb: float = 0.0
    loaded: set[tuple[int, int]] = field(default_factory=set)


@dataclass(frozen=True)
class Rules:
    """How one of the planners differs from another.

    Attributes:
        shares: the shares of parts, largest first.
        has_parts: whether GPUs are divided.
        may_divide: whether a whole GPU may be divided, and parts joined, while a case is decided.
        is_greedy: whether shares grow with the rate alone ("Self Tuning").
        has_interference: whether neighbours slow each other down.
    """

    shares: Sequence[int] = (100, 80, 60, 50, 40, 20)
    has_parts: bool = True
    may_divide: bool = True
    is_greedy: bool = False
    has_interference: bool = False


class State:
    """The GPUs of one case, with what the rules need to judge a part."""

    def __init__(self, gpus: list[Gpu], measured: Measured, times: Times, rules: Rules) -> None:
        self.gpus = gpus
        self.measured = measured
        self.times = times
        self.rules = rules

    def parts(self) -> Iterator[Part]:
        """Yield all parts, GPU by GPU."""
        for gpu in self.gpus:
            yield from gpu.parts

    def ms(self, part: Part, model: int, batch: int) -> float:
        """Return the time of a batch on a part, beside the GPU's other parts."""
        if not self.times.has_interference:
            return self.times.alone[model, part.share][batch]
        return self.times.beside((model, batch, part.share), self._neighbours(part))

    def _neighbours(self, part: Part) -> Iterable[Load]:
        if part.gpu >= len(self.gpus):
            return ()
        return [
            (each.model, each.batch, other.share)
            for other in self.gpus[part.gpu].parts
            if not other.is_same(part)
            for each in other.services
        ]

    def fits(self, part: Part, model: int) -> bool:
        """Return whether a model fits the memory of a part's GPU."""
        gpu = self.gpus[part.gpu]
        if self._has(gpu, part, model):
            return True
        return single(self.measured.gpu_memory_mb - gpu.used_mb) > self._needed_mb(gpu, part, model)

    def load(self, part: Part, model: int) -> None:
        """Count the memory of a model that was just put on a part.

        glet looks only after it has put the model there. So a part that was loaded before counts as one that has the
        model, and costs nothing.
        """
        gpu = self.gpus[part.gpu]
        if not self._has(gpu, part, model) and self.fits(part, model):
            gpu.used_mb += self._needed_mb(gpu, part, model)
            gpu.loaded.add((part.share, part.copy))

    def unload(self, part: Part, model: int) -> None:
        """Give back the memory of a model that is about to leave a part; the part stays loaded."""
        gpu, memory_mb = self.gpus[part.gpu], self.measured.models[model].memory_mb
        if self._has(gpu, part, model) and gpu.used_mb >= memory_mb:
            gpu.used_mb -= memory_mb

    def _needed_mb(self, gpu: Gpu, part: Part, model: int) -> float:
        is_loaded = (part.share, part.copy) in gpu.loaded
        return self.measured.models[model].memory_mb + (0 if is_loaded else self.measured.part_memory_mb)

    def _has(self, gpu: Gpu, part: Part, model: int) -> bool:
        if (part.share, part.copy) not in gpu.loaded:
            return False
        return any(
            each.model == model
            for other in gpu.parts
            if other.share == part.share and other.copy == part.copy
            for each in other.services
        )

    def divide(self, part: Part, share: int) -> Part:
        """Cut a whole GPU: the part becomes `share`, and the rest becomes a new part, which is returned."""
        part.share = share
        rest = Part(part.gpu, 100 - share, int(share == 50))
        self.gpus[part.gpu].parts.append(rest)
        return rest
