"""Best-effort work beneath the services of a plan: on which GPU, and how fast it runs there."""

from collections.abc import Sequence
from dataclasses import dataclass

from .services import BestEffort


@dataclass(frozen=True, slots=True)
class Beneath:
    """One best-effort job beneath the services of a GPU; its speed is 1 on an idle GPU."""

    name: str
    gpu: int
    speed: float


def beneath(gpus: Sequence[tuple[int, float, float]], jobs: Sequence[BestEffort]) -> tuple[Beneath, ...]:
    """Place jobs on the GPUs with the most time left, the largest job first, one on a GPU; some may fit nowhere.

    A job runs while no service does, so its speed is the GPU's spare time divided by its slowdown.

    Args:
        gpus: number, spare part of the time (0 to 1) and free memory in MB.
        jobs: the work.
    """
    left = sorted(gpus, key=lambda gpu: (-gpu[1], gpu[0]))
    placed = []
    for job in sorted(jobs, key=lambda job: (-job.memory_mb, job.slowdown, job.name)):
        fits = next((gpu for gpu in left if gpu[2] >= job.memory_mb and gpu[1] > 0), None)
        if fits is not None:
            left.remove(fits)
            placed.append(Beneath(job.name, fits[0], fits[1] / job.slowdown))
    return tuple(sorted(placed, key=lambda each: each.gpu))
