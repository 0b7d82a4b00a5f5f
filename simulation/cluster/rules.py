"""The settings of a run, and the record of each round."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Rules:
    """The settings of a run.

    Attributes:
        round_s: length of a round.
        restart_cost_s: time that a job loses when it moves, or when it continues after a pause.
        is_static: whether all jobs arrive at the start.
        is_compatible: whether to do what the published simulator does.
        is_packed: whether jobs go to the fullest servers.
        window: the first and the last number of the jobs that count in results; None: all jobs. The run ends when all
            jobs that count have ended.
    """

    round_s: float = 300.0
    restart_cost_s: float = 30.0
    is_static: bool = False
    is_compatible: bool = False
    is_packed: bool = False
    window: tuple[int, int] | None = None

    def counts(self, number: int) -> bool:
        """Return whether the job with this number counts in results."""
        return self.window is None or self.window[0] <= number <= self.window[1]


class Round(NamedTuple):
    """What jobs got in one round. `speed` is the sum of the jobs' speeds; a job at its fair share has the speed 1."""

    time_s: float
    queued: int
    running: int
    gpus: float
    cpus: float
    memory_gb: float
    storage_mbps: float
    speed: float
