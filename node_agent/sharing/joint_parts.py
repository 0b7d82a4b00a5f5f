"""The limits of hp slots whose job uses several GPUs: the job may launch in the same part of each cycle on all of them.

A collective runs until its peers run. If a job were held earlier on one of its GPUs, a collective of another GPU would
spin until the next cycle. That counts as use of its slot, which is then held earlier itself. So the GPUs would take
turns in spinning, and the job would compute hardly anything of what its limit allows.

The part is the least that is due on one of the GPUs. Each GPU is checked at other times, so what is agreed in one cycle
holds from the next one on. A turn may still end between the launches of two peers. So if one GPU is busy and another
one is not, the next turn is long enough for the peer, also if the job is in debt.

Refused: to hold a job only where each GPU has used its own limit. The agent does not know which programs have
collectives. So a program that uses its GPUs independently waits, too, on those of which it uses a good part.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_BUSY, _IDLE = 0.9, 0.1
_FOR_PEERS = 0.05
""" The part of a cycle in which a job may launch the peers of a collective that spins. """
_LASTS = 15
""" What a GPU is due counts for so many cycles, as its plans do. So a GPU whose checks fail holds no other one. """


@dataclass(frozen=True)
class Due:
    """What a job is due on one GPU.

    Args:
        part: of each cycle in which it may launch.
        rate: the part of the time in which it was busy lately.
        cycle: the number of the cycle in which this was found.
    """

    part: float
    rate: float
    cycle: int


class JointParts:
    """What all GPUs of an agent have agreed on."""

    def __init__(self) -> None:
        self._due: dict[str, dict[str, Due]] = {}
        """ By job and by GPU. """
        self._agreed: dict[str, tuple[int, float, float]] = {}
        """ By job: the number of a cycle, the part in that cycle, and the part in later ones. """

    def note(self, gpu: str, due: Mapping[str, Due]) -> None:
        """Note what jobs are due that use a good part of their limit on a GPU, by job."""
        for job in self._due.keys() - due.keys():
            self._due[job].pop(gpu, None)
        for job, each in due.items():
            self._due.setdefault(job, {})[gpu] = each
        self._due = {job: gpus for job, gpus in self._due.items() if gpus}
        self._agreed = {job: each for job, each in self._agreed.items() if len(self._due.get(job, ())) > 1}

    def parts(self, job: str, cycle: int) -> tuple[float, float] | None:
        """Return in which part of a cycle a job may launch, and in which part of later ones.

        Args:
            job: is due something on this GPU.
            cycle: the number of the cycle that is under way.

        Returns:
            None: it is due something on one GPU only.
        """
        due = [each for each in self._due.get(job, {}).values() if cycle - each.cycle <= _LASTS]
        if len(due) < 2:
            return None
        least = min(each.part for each in due)
        if max(each.rate for each in due) > _BUSY and min(each.rate for each in due) < _IDLE:
            least = max(least, _FOR_PEERS)
        number, _, later = self._agreed.get(job, (cycle - 1, least, least))
        if number != cycle:
            self._agreed[job] = cycle, later if cycle - number <= _LASTS else least, least
        return self._agreed[job][1:]
