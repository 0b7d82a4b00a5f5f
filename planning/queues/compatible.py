"""What Synergy's published simulator does differently from its policies. Orion does the same to reproduce its results.

Source: msr-fiddle/synergy (MIT), simulator/schedulers. The differences in policies and demands:

FTF     the job that is treated best goes first
DRF     orders jobs by the share that they ask for, not by the share that they attained
LAS     takes, in order, only the jobs that the cluster has GPUs for; under tune, it places those with most GPUs first
SRSF    does not exist, because the published simulator fails to construct it
storage every model asks for the same bandwidth a GPU

Policies that use a job's remaining time assume a speed. Under mechanism fair, it is the speed at the fair share. Under
the other mechanisms, it is the job's speed in the last round, or its best speed if it did not run in that round.
"""

import numpy as np
from numpy.typing import NDArray

from .demands import Profile, not_beaten
from .order import POLICIES, Floats, Key, finish_time_ratio
from .resources import Demand, Server

STORAGE_MBPS_PER_GPU = 62.5

KEYS: dict[str, Key] = {
    **{name: POLICIES[name] for name in ("FIFO", "SRTF", "LAS", "TETRIS")},
    "FTF": finish_time_ratio,
    "DRF": lambda waiting, now_s: waiting.demand_share,
}

OPT = frozenset({"FIFO", "SRTF"})
""" Policies under which the original's integer program has the right capacities. """


def first_by_gpus(asked: Floats, gpus: float) -> NDArray[np.intp]:
    """Give GPUs to jobs in their order, and return the positions of the jobs that get them.

    Args:
        asked: the number of GPUs that each job asks for. A job that needs more than are left is skipped.
        gpus: the number of GPUs that there are.
    """
    taking_part, left = [], np.flatnonzero(asked <= gpus)
    while len(left):
        total = np.cumsum(asked[left])
        count = int(np.searchsorted(total, gpus, side="right"))
        taking_part.append(left[:count])
        gpus -= float(total[count - 1])
        left = left[count:]
        left = left[asked[left] <= gpus]
    return np.concatenate(taking_part) if taking_part else np.empty(0, dtype=np.intp)


def largest_use(profile: Profile, gpus: int, server: Server, fair: Demand) -> Demand:
    """Return the demand with which a job of that many GPUs is fastest.

    If one server has enough GPUs for the job, the CPUs and memory are cut to what that server has. The speed is then
    interpolated linearly between its values at the CPUs of the fair share and at the profile's best CPUs (the
    original's `add_synergy_profile`). If the job needs several servers, an amount of CPUs or memory that exceeds one
    server is replaced by the amount of the fair share, and the speed is then 1.
    """
    cpus, memory_gb, storage_mbps = gpus * profile.cpus, gpus * profile.memory_gb, fair.storage_mbps
    speed, is_cut = profile.speed, False
    if cpus > server.cpus or memory_gb > server.memory_gb:
        is_cut = gpus <= server.gpus
        speed = speed if is_cut else 1.0
        cpus = min(cpus, server.cpus) if is_cut or cpus <= server.cpus else fair.cpus
        memory_gb = min(memory_gb, server.memory_gb) if is_cut or memory_gb <= server.memory_gb else fair.memory_gb
    if is_cut and gpus * profile.cpus != fair.cpus:
        speed = 1 + (profile.speed - 1) / (gpus * profile.cpus - fair.cpus) * (cpus - fair.cpus)
    return Demand(gpus, cpus, memory_gb, storage_mbps, speed)


def choices(profile: Profile, gpus: int, fair: Demand) -> tuple[Demand, ...]:
    """Return the profile's points that are at least as fast as the fair share; the integer program chooses one."""
    points = [
        Demand(gpus, gpus * cpus, gpus * memory_gb, fair.storage_mbps, speed)
        for cpus, row in zip(profile.cpu_points, profile.speeds, strict=True)
        for memory_gb, speed in zip(profile.memory_points_gb, row, strict=True)
    ]
    least = max((p.speed for p in points if p.cpus <= fair.cpus and p.memory_gb <= fair.memory_gb), default=1.0)
    return not_beaten([point for point in points if point.speed >= least] or [fair])
