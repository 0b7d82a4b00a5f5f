"""Finds jobs that no round can ever run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orion.errors import Conflict
from orion.planning.queues.demands import Profile

from .clusters import Cluster
from .jobs import ANY, Job


@dataclass(frozen=True)
class Fitting:
    """The jobs that can run, and how many cannot."""

    jobs: list[Job]
    refused: int


def fitting(jobs: Sequence[Job], profiles: Mapping[str, Profile], cluster: Cluster, *, skip_unfit: bool) -> Fitting:
    """Return the jobs that the cluster can run.

    Raises:
        Conflict: a job is too large, and `skip_unfit` is not set.
    """
    most: dict[float, int] = {}
    kept: list[Job] = []
    for job in jobs:
        memory_gb = (profiles[job.model] if job.model else ANY).gpu_memory_gb
        if memory_gb not in most:
            most[memory_gb] = cluster.most_gpus(memory_gb)
        if job.gpus <= most[memory_gb]:
            kept.append(job)
        elif not skip_unfit:
            needs = f" with {memory_gb:g} GB of GPU memory each" if memory_gb else ""
            raise Conflict(
                f"job {job.number} asks for {job.gpus} GPUs{needs}, and the largest job that fits {cluster.name} "
                f"has {most[memory_gb]}: give a larger cluster, or use --skip-unfit"
            )
    return Fitting(kept, len(jobs) - len(kept))
