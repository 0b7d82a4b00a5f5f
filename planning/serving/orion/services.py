"""What the planner decides from: services with what is measured of them, and the types of GPU with what they offer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..latency import Latency


@dataclass(frozen=True, eq=False)
class Profile:
    """What is measured of one service on one type of GPU. Two profiles are equal only if they are the same object.

    Attributes:
        latency: the GPU's time for a batch, by share and batch, alone on the GPU.
        memory_mb: GPU memory of the service itself.
        overhead_ms: time for a batch outside of the GPU, by batch; the first is of batch 1, the last also holds for
            larger ones. Neighbours on the GPU do not lengthen this time.
        max_batch: the largest batch that the service can run.
    """

    latency: Latency
    memory_mb: float = 0.0
    overhead_ms: tuple[float, ...] = (0.0,)
    max_batch: int = 32

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """The measured shares in whole percent, rounded down, from the smallest."""
        return tuple(sorted({int(share) for share in self.latency.points if share >= 1}))

    @cached_property
    def alone_ms(self) -> Mapping[int, tuple[float, ...]]:
        """The GPU's time for each batch from 1 on, without overhead, by share."""
        batches = range(1, self.max_batch + 1)
        return {share: tuple(self.latency.ms(batch, share) for batch in batches) for share in range(1, 101)}

    def times_ms(self, share: int, slowdown: float = 1.0) -> tuple[float, ...]:
        """Return the time of each batch from 1 on, on a share of the GPU (percent), beside neighbours that slow it."""
        last = len(self.overhead_ms) - 1
        alone = self.alone_ms[share]
        return tuple(ms * slowdown + self.overhead_ms[min(place, last)] for place, ms in enumerate(alone))


@dataclass(frozen=True, slots=True)
class Service:
    """One service.

    Attributes:
        name: the service's name; no two services of a plan have the same.
        rate: requests/s; 0: it needs no GPU.
        objective_ms: the time in which a request must be answered.
        profiles: what is measured of it, by type of GPU. On other types it cannot run.
        quantile: the part of the requests that must meet the objective.
        process: services that name the same process run in one process, and can divide a GPU by green contexts.
        max_delay_ms: how long the service's oldest request waits for a batch to fill.
    """

    name: str
    rate: float
    objective_ms: float
    profiles: Mapping[str, Profile]
    quantile: float = 0.99
    process: str | None = None
    max_delay_ms: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.rate < float("inf"):
            raise ValueError(f"the rate of {self.name} is {self.rate}; it must be 0 or more requests/s")
        if not 0 < self.objective_ms < float("inf"):
            raise ValueError(f"the objective of {self.name} is {self.objective_ms} ms; it must be above 0")
        if not 0 <= self.max_delay_ms < self.objective_ms:
            raise ValueError(f"{self.name} waits {self.max_delay_ms} ms; it must be 0 or more, and below the objective")
        if not 0 < self.quantile < 1:
            raise ValueError(f"the quantile of {self.name} is {self.quantile}; it must lie between 0 and 1")


@dataclass(frozen=True, slots=True)
class Occupant:
    """One service on a part of a GPU, as its neighbours feel it.

    Attributes:
        service: its name.
        batch: its largest batch.
        share: the part's share, in percent.
        part: tells the parts of one GPU apart.
    """

    service: str
    batch: int
    share: int
    part: int


Slowdown = Callable[[Occupant, Sequence[Occupant]], float]
""" How many times longer the GPU's work of one service takes beside those on the GPU's other parts; at least 1. """


def undisturbed(mine: Occupant, others: Sequence[Occupant]) -> float:
    """Return the slowdown of a service whose neighbours do not slow it down."""
    return 1.0


@dataclass(frozen=True, slots=True)
class GpuType:
    """What the GPUs of one type offer to services.

    Attributes:
        name: the type.
        count: how many GPUs there are.
        memory_mb: what services may use of one GPU.
        slowdown: how neighbours on one GPU slow each other down.
        part_memory_mb: what each part with a service needs beside its services (a context).
        part_sizes: the shares that a part may have beside 100, in percent; None: those that are measured for every
            service.
        parts_per_gpu: at most so many parts on one GPU.
        switch_ms: GPU time that best-effort work loses for each busy period of the services above it; each request
            counts as a busy period.
    """

    name: str
    count: int
    memory_mb: float
    slowdown: Slowdown = field(default=undisturbed)
    part_memory_mb: float = 0.0
    part_sizes: tuple[int, ...] | None = None
    parts_per_gpu: int = 5
    switch_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class BestEffort:
    """Work that may run beneath services, one on a GPU.

    Attributes:
        name: its name.
        memory_mb: GPU memory.
        slowdown: how many times longer its kernels take beneath services than alone.
    """

    name: str
    memory_mb: float = 0.0
    slowdown: float = 1.0
