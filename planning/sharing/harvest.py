"""How fast a best-effort job runs on a GPU that it shares with a high-priority tenant.

The job has the GPU while the tenant is idle. Each busy period of the tenant also costs the job one context switch: the
GPU changes contexts, and the job's next kernels start late. `docs/results/colocation.md` compares this model's
predictions with measurements.

A job on several such GPUs runs as fast as on the slowest of them. The job's GPUs exchange gradients once in each
iteration. An iteration takes longer than a busy period of a service, so short waits average out within an iteration.
The faster GPUs still wait for the slowest one. Refused: the product of the speeds on the GPUs, because it is right only
if an iteration is shorter than a busy period.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tenant:
    """The load of one high-priority tenant on one GPU.

    Attributes:
        busy: the part of the time in which the tenant's work is on the GPU.
        busy_periods: the number of busy periods in a second.
        switch_s: GPU time that the best-effort job loses in each busy period (0.30 ms on an H200).
        slowdown: how many times longer the job's kernels take beside the tenant; at least 1.
    """

    busy: float
    busy_periods: float = 0.0
    switch_s: float = 0.0003
    slowdown: float = 1.0


def speed_beneath(tenant: Tenant) -> float:
    """Return a job's speed on one GPU beside a tenant, relative to its speed without a tenant, 0 to 1."""
    return max(0.0, 1 - tenant.busy - tenant.busy_periods * tenant.switch_s) / tenant.slowdown


def speed_together(speeds: Iterable[float]) -> float:
    """Return the speed of a job on several GPUs, from its speed on each of them."""
    return min(speeds)
