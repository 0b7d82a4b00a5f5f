"""What a planner of services decides: parts of GPUs, and the services that each part runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assignment:
    """One service on one part of a GPU.

    Attributes:
        service: the service's name.
        batch: the most requests that one batch holds.
        throughput: requests/s of the service that the plan sends to this part.
        max_delay_ms: how long the oldest request waits for a batch to fill.
    """

    service: str
    batch: int
    throughput: float
    max_delay_ms: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of one GPU, which serves one batch at a time.

    Attributes:
        gpu: the GPU's index, from 0.
        share: the part's share of the GPU's SMs, in percent.
        copy: tells parts of one GPU with the same share apart, from 0.
        way: `exclusive`, `turns`, `part` or `threads`.
        order: who comes first on the part: `slices`, `fifo` or `edf`.
        services: the services that the part runs.
    """

    gpu: int
    share: int
    copy: int
    way: str
    order: str
    services: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A planner's answer.

    Attributes:
        parts: the parts that serve something, in the order of GPUs; empty if the planner found no plan.
        reason: why there is no plan, or why the plan is as it is.
        is_schedulable: whether every service got the rate that it asked for.
    """

    parts: tuple[Part, ...]
    reason: str = ""
    is_schedulable: bool = True

    @property
    def gpus(self) -> int:
        """The number of GPUs that the plan uses."""
        return len({part.gpu for part in self.parts})
