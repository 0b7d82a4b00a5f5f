"""What a training job asks for: its fair share of a server, or what it can use (Synergy, OSDI 2022).

A profile says how fast one GPU of a model trains at each number of CPU cores and amount of memory. The fair share is
the part of a server's CPUs, memory and storage bandwidth that belongs to one of its GPUs. A job with its fair share has
the speed 1.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from .resources import Demand, Server


@dataclass(frozen=True)
class Profile:
    """How a model trains on one GPU with its part of a server.

    Attributes:
        model: the name that jobs give.
        iteration_s: duration of one iteration at the fair share.
        cpus: number of cores for each GPU with which the model is fastest.
        memory_gb: amount of host memory for each GPU with which the model is fastest.
        speed: the model's speed with `cpus` and `memory_gb`, relative to its speed at the fair share.
        storage_mbps: bandwidth of storage that the model uses for each GPU.
        gpu_memory_gb: GPU memory that the model needs on each GPU; 0: unknown.
        cpu_points: the measured numbers of cores for each GPU, ascending.
        memory_points_gb: the measured amounts of host memory for each GPU, ascending.
        speeds: speed at each of `cpu_points` (rows) and `memory_points_gb` (columns); empty: not measured.
    """

    model: str
    iteration_s: float
    cpus: float
    memory_gb: float
    speed: float
    storage_mbps: float = 0.0
    gpu_memory_gb: float = 0.0
    cpu_points: tuple[float, ...] = ()
    memory_points_gb: tuple[float, ...] = ()
    speeds: tuple[tuple[float, ...], ...] = ()

    def measured_at(self, cpus: float, memory_gb: float) -> float:
        """Interpolate `speeds` linearly between its points; outside the points, return the value of the nearest one."""
        (row, above, part), (column, right, across) = (
            _between(self.cpu_points, cpus),
            _between(self.memory_points_gb, memory_gb),
        )
        first = self.speeds[row][column] * (1 - across) + self.speeds[row][right] * across
        last = self.speeds[above][column] * (1 - across) + self.speeds[above][right] * across
        return first * (1 - part) + last * part

    def speed_at(self, cpus: float, memory_gb: float, fair: Demand) -> float:
        """Return the speed of one GPU with that many cores and that much memory, relative to a fair share."""
        if self.speeds:
            base = self.measured_at(fair.cpus_per_gpu, fair.memory_gb_per_gpu)
            return self.measured_at(cpus, memory_gb) / base if base > 0 else 0.0
        if self.cpus <= fair.cpus_per_gpu or cpus >= self.cpus:
            return self.speed
        return 1 + (self.speed - 1) * (cpus - fair.cpus_per_gpu) / (self.cpus - fair.cpus_per_gpu)


def _between(points: Sequence[float], value: float) -> tuple[int, int, float]:
    """Return the indices of the points on both sides of a value, and the value's position between them, 0 to 1."""
    above = bisect_right(points, value)
    if above == 0 or above == len(points):
        end = min(above, len(points) - 1)
        return end, end, 0.0
    return above - 1, above, (value - points[above - 1]) / (points[above] - points[above - 1])


def fair_share(gpus: int, server: Server, storage_mbps_per_gpu: float, gpu_memory_gb: float = 0.0) -> Demand:
    """Return the fair share of a job with that many GPUs on such servers. With it, a job's speed is 1."""
    return Demand(
        gpus,
        gpus * server.cpus / server.gpus,
        gpus * server.memory_gb / server.gpus,
        gpus * storage_mbps_per_gpu,
        1.0,
        gpu_memory_gb,
    )


def largest_use(profile: Profile, gpus: int, server: Server, fair: Demand) -> Demand:
    """Return the demand with which a job of that many GPUs is fastest.

    If one server has enough GPUs for the job, the demand does not exceed that server. The speed comes from the
    profile's matrix. A job that would not be faster than at its fair share asks for no more than its fair share.
    """
    cpus, memory_gb, storage_mbps = _most_per_gpu(gpus, server)
    cpus, memory_gb = min(profile.cpus, cpus), min(profile.memory_gb, memory_gb)
    speed = profile.speed_at(cpus, memory_gb, fair)
    if speed <= 1:
        cpus, memory_gb = min(cpus, fair.cpus_per_gpu), min(memory_gb, fair.memory_gb_per_gpu)
        storage_mbps = min(storage_mbps, fair.storage_mbps_per_gpu)
        speed = profile.speed_at(cpus, memory_gb, fair)
        if speed < 1:
            return fair
    storage_mbps = min(profile.storage_mbps, storage_mbps)
    return Demand(gpus, gpus * cpus, gpus * memory_gb, gpus * storage_mbps, speed, profile.gpu_memory_gb)


def choices(profile: Profile, gpus: int, server: Server, fair: Demand) -> tuple[Demand, ...]:
    """Return the demands that the integer program may choose for a job.

    They are the measured points that fit a server and are at least as fast as the fair share, and the fair share
    itself. A point is left out if another one is as good or better in speed, CPUs and memory.
    """
    cpus, memory_gb, storage_mbps = _most_per_gpu(gpus, server)
    found = [
        Demand(
            gpus, gpus * row, gpus * column,
            gpus * min(profile.storage_mbps, storage_mbps if speed > 1 else fair.storage_mbps_per_gpu),
            speed, profile.gpu_memory_gb,
        )
        for row in profile.cpu_points if row <= cpus
        for column in profile.memory_points_gb if column <= memory_gb
        if (speed := profile.speed_at(row, column, fair)) >= 1
    ]  # fmt: skip
    return not_beaten([*found, fair])


def not_beaten(demands: Sequence[Demand]) -> tuple[Demand, ...]:
    """Leave out each demand for which another one is at least as fast with no more CPUs and memory; return the others.

    The fastest demand comes first. Of equal demands, the first one stays.
    """
    kept: list[Demand] = []
    for demand in sorted(demands, key=lambda each: (-each.speed, each.cpus, each.memory_gb)):
        if not any(other.cpus <= demand.cpus and other.memory_gb <= demand.memory_gb for other in kept):
            kept.append(demand)
    return tuple(kept)


def _most_per_gpu(gpus: int, server: Server) -> tuple[float, float, float]:
    """Return the most CPUs, memory and storage bandwidth that each GPU of a job can get.

    A job that needs several servers gets whole servers.
    """
    most = min(gpus, server.gpus)
    return server.cpus / most, server.memory_gb / most, server.storage_mbps / most
