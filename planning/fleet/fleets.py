"""What a fleet asks for, and what a plan answers."""

from dataclasses import dataclass

RESTART_H = 30 / 3600
""" A job that moves to other GPUs makes no progress for so long: the driver takes 9 to 12 s to checkpoint 20 GB. """
TOLERANCE_H = 1e-9


@dataclass(frozen=True)
class Service:
    """Requests that one server answers one after the other.

    Attributes:
        name: unique in the fleet.
        service_s: the time of one request on a whole GPU.
        rates: requests/s by span of time: (from_h, rate), ascending, the first at 0; each holds until the next.
        objective_s: the latency that 99 of 100 requests must hold.
        memory_gb: GPU memory on each GPU that runs the service.
        has_be: whether best-effort work may run beneath the service.
    """

    name: str
    service_s: float
    rates: tuple[tuple[float, float], ...]
    objective_s: float
    memory_gb: float
    has_be: bool = True

    @property
    def peak(self) -> float:
        """The highest rate in requests/s."""
        return max(rate for _, rate in self.rates)

    def rate(self, at_h: float) -> float:
        """Return requests/s at a time."""
        return next((rate for begin_h, rate in reversed(self.rates) if begin_h <= at_h), 0.0)


@dataclass(frozen=True)
class Batch:
    """Work that can be cut into pieces, on any number of GPUs, within a window.

    Attributes:
        name: unique in the fleet.
        work_gpu_h: GPU-hours on GPUs without other work.
        from_h: the window's begin.
        to_h: the window's end. If it is later than the plan's end, the plan is a day that repeats, and the window goes
            on at the plan's begin.
        memory_gb: GPU memory on each GPU.
    """

    name: str
    work_gpu_h: float
    from_h: float
    to_h: float
    memory_gb: float

    def closed(self, hours: float) -> tuple[float, float] | None:
        """Return the time between the two parts of a window over midnight, in a plan of some hours; None: one part."""
        return (self.to_h - hours, self.from_h) if self.to_h > hours + TOLERANCE_H else None


@dataclass(frozen=True)
class Training:
    """Equal jobs that each hold all their GPUs at once.

    Attributes:
        name: unique in the fleet.
        count: the number of jobs.
        gpus: GPUs of one job.
        work_gpu_h: GPU-hours of one job on GPUs without other work, over all its GPUs.
        memory_gb: GPU memory on each GPU.
        by_h: the time at which all jobs must have ended.
    """

    name: str
    count: int
    gpus: int
    work_gpu_h: float
    memory_gb: float
    by_h: float

    @property
    def alone_h(self) -> float:
        """How long one job takes on GPUs without other work."""
        return self.work_gpu_h / self.gpus


@dataclass(frozen=True)
class Fleet:
    """All workloads and the GPUs that they may have.

    Attributes:
        memory_gb: memory of one GPU.
        at_most: the number of GPUs that there are; None: as many as it takes.
        hours: the plan's length.
        switch_s: GPU time that best-effort work loses in each busy period of a service.
        hp_per_gpu: the most services on one GPU.
        services: workloads with high priority.
        batches: best-effort work with a window.
        training: best-effort jobs with a deadline.
    """

    memory_gb: float
    at_most: int | None
    hours: float
    switch_s: float
    hp_per_gpu: int
    services: tuple[Service, ...]
    batches: tuple[Batch, ...]
    training: tuple[Training, ...]

    @property
    def late_s(self) -> float:
        """How much later a request may begin because best-effort work leaves the GPU first."""
        return self.switch_s if self.batches or self.training else 0.0

    def spans(self) -> tuple[float, ...]:
        """Return the times at which any service's rate changes, with 0 and the plan's end."""
        inside = {at_h for each in self.services for at_h, _ in each.rates if 0 < at_h < self.hours}
        return (0.0, *sorted(inside), self.hours)


@dataclass(frozen=True)
class Placement:
    """A workload on one GPU for a span of time in which nothing about it changes.

    Attributes:
        gpu: the GPU's index, from 0.
        workload: the workload's name.
        copy: tells the jobs of one training apart, from 0.
        role: `hp` or `be`.
        way: `exclusive`: the only workload of its role; `turns`: with other services; `beneath`: be with a service.
        from_h: the begin.
        to_h: the end.
        rate: requests/s; 0 for best-effort work.
        work_gpu_h: the best-effort work that is done, in GPU-hours on a GPU without other work; 0 for services.
        memory_gb: GPU memory.
    """

    gpu: int
    workload: str
    copy: int
    role: str
    way: str
    from_h: float
    to_h: float
    rate: float
    work_gpu_h: float
    memory_gb: float


@dataclass(frozen=True)
class Unplaced:
    """A workload, or some jobs of a training, that the plan leaves out."""

    name: str
    reason: str


@dataclass(frozen=True)
class End:
    """When one job of a training, or a batch, has ended; None: it is not placed.

    The end of a batch whose window goes over midnight may be later than the plan's end: it is an hour of the next day.
    """

    name: str
    copy: int
    end_h: float | None
