"""Policies: which of the jobs that wait comes first.

FIFO         first arrival first; a later job may overtake one that does not fit
FIFO-STRICT  first arrival first; no job overtakes
SRTF         shortest remaining time first
LAS          least attained service first: GPU time so far
SRSF         shortest remaining service first: remaining time times GPUs
FTF          finish-time fairness (Themis, NSDI 2020): first the job whose expected time from arrival to end is
             longest, relative to its time alone at the fair share
DRF          dominant resource fairness (NSDI 2011): first the job that has attained least of the resource that it uses
             most
TETRIS       smallest remaining share of the cluster, over all resources and the remaining time (SIGCOMM 2014)

A pause costs a running job time, so the job keeps its GPUs unless an exchange is worth that cost. Policies that look
at the remaining time (SRTF, SRSF, TETRIS) exchange two jobs only if the waiting job is shorter by more than the cost:
otherwise the exchange makes the mean completion time longer. Policies that look at the past (LAS, DRF, FTF) would
exchange equal jobs in every round. They let a running job be ahead by PAUSES_A_TURN times the cost, so that jobs that
take turns lose at most that part of their time. If pauses cost nothing, the order is that of the policy alone.

Jobs that are equal are ordered by arrival and then by number. So the result does not depend on the order of a dict.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Waiting(Protocol):
    """What is known of the jobs that wait: arrays of one length."""

    @property
    def arrival_s(self) -> Floats:
        """The time at which each job arrived."""

    @property
    def gpus(self) -> Floats:
        """The number of GPUs that each job asks for."""

    @property
    def remaining_s(self) -> Floats:
        """The time that each job still needs at the speed that the job can expect."""

    @property
    def alone_s(self) -> Floats:
        """The time that each job needs from its start to its end, alone and at its fair share."""

    @property
    def attained_s(self) -> Floats:
        """The time that each job has run."""

    @property
    def pause_cost_s(self) -> Floats:
        """The time that each job would lose if it had to pause; 0 for jobs that do not run."""

    @property
    def attained_share(self) -> Floats:
        """The largest part of the cluster's GPUs, CPUs or memory that each job had, integrated over its run time."""

    @property
    def demand_share(self) -> Floats:
        """The largest part of the cluster's GPUs, CPUs or memory that each job asks for."""

    @property
    def demand_sum(self) -> Floats:
        """The sum of the parts of the cluster's GPUs, CPUs and memory that each job asks for."""


PAUSES_A_TURN = 40
""" With 40, the mean completion times of generated jobs under LAS, DRF and FTF are lowest, or close to that. """

Key = Callable[[Waiting, float], Floats]
""" Returns a job's key at a time, in seconds; the smallest goes first. """


def finish_time_ratio(waiting: Waiting, now_s: float) -> Floats:
    """Return each job's expected time from arrival to end, divided by `alone_s`."""
    return (now_s - waiting.arrival_s + waiting.remaining_s) / waiting.alone_s


def _ratio_with_turn(waiting: Waiting, now_s: float) -> Floats:
    return finish_time_ratio(waiting, now_s) + PAUSES_A_TURN * waiting.pause_cost_s / waiting.alone_s


POLICIES: dict[str, Key] = {
    "FIFO": lambda waiting, now_s: waiting.arrival_s,
    "FIFO-STRICT": lambda waiting, now_s: waiting.arrival_s,
    "SRTF": lambda waiting, now_s: waiting.remaining_s - waiting.pause_cost_s,
    "LAS": lambda waiting, now_s: (waiting.attained_s - PAUSES_A_TURN * waiting.pause_cost_s) * waiting.gpus,
    "SRSF": lambda waiting, now_s: (waiting.remaining_s - waiting.pause_cost_s) * waiting.gpus,
    "FTF": lambda waiting, now_s: -_ratio_with_turn(waiting, now_s),
    "DRF": lambda waiting, now_s: waiting.attained_share - PAUSES_A_TURN * waiting.pause_cost_s * waiting.demand_share,
    "TETRIS": lambda waiting, now_s: waiting.demand_sum * (waiting.remaining_s - waiting.pause_cost_s),
}

STRICT = frozenset({"FIFO-STRICT"})
""" Policies under which a job that does not fit holds back all jobs behind it. """


def order(jobs: NDArray[np.intp], keys: Floats) -> NDArray[np.intp]:
    """Return jobs by their keys, and equal jobs by number.

    Args:
        jobs: the numbers of the jobs; of two jobs, the one that arrived first has the smaller number. Jobs that are
            almost in their order already are sorted fastest.
        keys: the key of each job.
    """
    found = np.argsort(keys, kind="stable")
    ordered, keys_now = jobs[found], keys[found]
    if ((keys_now[1:] == keys_now[:-1]) & (ordered[1:] < ordered[:-1])).any():
        return jobs[np.lexsort((jobs, keys))]
    return ordered
