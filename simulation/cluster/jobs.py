"""The training jobs that arrive, and what each of them asks for on a given cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orion.planning.queues import compatible, demands
from orion.planning.queues.demands import Profile, fair_share
from orion.planning.queues.fit import FreeResources
from orion.planning.queues.placement import Wish
from orion.planning.queues.resources import Demand, Server

ANY = Profile("", iteration_s=1.0, cpus=0.0, memory_gb=0.0, speed=1.0)
""" The profile of jobs of traces without models: one iteration is one second. """


class Job(NamedTuple):
    """One training job.

    Attributes:
        number: identifies the job; files call this number the job's id.
        model: the name of the profile; empty in traces without models.
        arrival_s: the time at which the job arrives.
        iterations: the number of iterations from the job's start to its end.
        gpus: the number of GPUs that the job asks for.
    """

    number: int
    model: str
    arrival_s: float
    iterations: float
    gpus: int


@dataclass(frozen=True)
class Asked:
    """What the jobs of one model with one number of GPUs ask for."""

    fair: Demand
    best: Demand
    choices: tuple[Demand, ...]


def reference(servers: Sequence[Server]) -> Server:
    """Return the server that defines the fair share: for each GPU, it has the least that any server has for a GPU."""
    gpus = max(server.gpus for server in servers)
    least = [
        min(getattr(server, name) / server.gpus for server in servers) for name in ("cpus", "memory_gb", "storage_mbps")
    ]
    return Server(gpus, *(gpus * each for each in least))


def wishes(jobs: Sequence[Job], profiles: Mapping[str, Profile], server: Server, *, is_compatible: bool) -> list[Wish]:
    """Return what each job asks for, in the order of `jobs`.

    Args:
        jobs: the jobs.
        profiles: profiles by model; every job's model must be there.
        server: the server that fair shares refer to.
        is_compatible: whether to ask for what the published simulator asks for.
    """
    asked: dict[tuple[str, int], Asked] = {}
    found = []
    for position, job in enumerate(jobs):
        kind = job.model, job.gpus
        if kind not in asked:
            profile = profiles[job.model] if job.model else ANY
            asked[kind] = (_compatibly if is_compatible else _asked)(profile, job.gpus, server)
        found.append(Wish(position, asked[kind].fair, asked[kind].best, asked[kind].choices))
    return found


def within_reach(asked: Sequence[Wish], shapes: Sequence[Sequence[Server]]) -> list[Wish]:
    """Return the wishes; a job that could never get its best, on servers of several kinds, asks for its fair share.

    Args:
        asked: the wishes.
        shapes: the servers at several times of the day.
    """
    empty = [FreeResources(servers) for servers in shapes]
    fits: dict[Demand, bool] = {}
    for wish in asked:
        if wish.best not in fits:
            fits[wish.best] = any(free.find(wish.best) is not None for free in empty)
    return [wish if fits[wish.best] else Wish(wish.job, wish.fair, wish.fair, wish.choices) for wish in asked]


def _asked(profile: Profile, gpus: int, server: Server) -> Asked:
    fair = fair_share(gpus, server, server.storage_mbps / server.gpus, profile.gpu_memory_gb)
    if not profile.model:
        return Asked(fair, fair, (fair,))
    return Asked(fair, demands.largest_use(profile, gpus, server, fair), demands.choices(profile, gpus, server, fair))


def _compatibly(profile: Profile, gpus: int, server: Server) -> Asked:
    fair = fair_share(gpus, server, compatible.STORAGE_MBPS_PER_GPU)
    if not profile.model:
        return Asked(fair, fair, (fair,))
    return Asked(fair, compatible.largest_use(profile, gpus, server, fair), compatible.choices(profile, gpus, fair))
