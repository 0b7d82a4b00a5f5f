"""What a server has, what a job takes, and the servers from which the job takes it."""

from dataclasses import dataclass, field
from math import inf

Parts = tuple[tuple[int, int], ...]
""" Where a job runs: (server, number of GPUs) for each server that it uses, in the order of servers. """


@dataclass(frozen=True)
class Server:
    """What one server has in all.

    Attributes:
        gpus: number of GPUs.
        cpus: CPU cores.
        memory_gb: host memory.
        storage_mbps: bandwidth of the server's storage.
        speed: speed of a training job on this server, relative to GPUs that the job does not share. It is less than 1
            beside a high-priority tenant.
        gpu_memory_gb: the part of each GPU's memory that training may use.
    """

    gpus: int
    cpus: float
    memory_gb: float
    storage_mbps: float
    speed: float = 1.0
    gpu_memory_gb: float = inf


@dataclass(frozen=True, eq=False)  # a key of dicts in each round: compared by identity, which costs no arithmetic
class Demand:
    """What a job takes while it runs, over all its GPUs, and how fast it is with that.

    Attributes:
        gpus: number of GPUs.
        cpus: CPU cores.
        memory_gb: host memory.
        storage_mbps: bandwidth of storage.
        speed: the job's speed, relative to its speed at the fair share.
        gpu_memory_gb: memory that the job needs on each GPU; 0: unknown.
        cpus_per_gpu: cores that come with each GPU; `memory_gb_per_gpu` and `storage_mbps_per_gpu` likewise.
    """

    gpus: int
    cpus: float
    memory_gb: float
    storage_mbps: float
    speed: float
    gpu_memory_gb: float = 0.0
    cpus_per_gpu: float = field(init=False)
    memory_gb_per_gpu: float = field(init=False)
    storage_mbps_per_gpu: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cpus_per_gpu", self.cpus / self.gpus)
        object.__setattr__(self, "memory_gb_per_gpu", self.memory_gb / self.gpus)
        object.__setattr__(self, "storage_mbps_per_gpu", self.storage_mbps / self.gpus)
