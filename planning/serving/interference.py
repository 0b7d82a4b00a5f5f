"""How much a service's neighbour on the same GPU slows it down: glet's linear model.

Source: Choi et al., "Serving Heterogeneous Machine Learning Models on Multi-GPU Servers with Spatio-Temporal Sharing"
(USENIX ATC 2022). The model was fitted on an RTX 2080 Ti; the constants are those that the authors publish.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """The weights of the model's four terms, and its constant."""

    my_l2: float
    other_l2: float
    my_dram: float
    other_dram: float
    base: float


RTX_2080_TI = Constants(
    0.11290838746224496, 0.7159598718755424, 0.35486591956022895, 0.0882038259888065, 0.8953693917277343
)
""" Source: glet, resource/2080ti/INT_MODEL_CONSTANT.CSV. """


@dataclass(frozen=True)
class Utilisation:
    """How much of a whole GPU a model uses.

    Attributes:
        points: the utilisation of the L2 cache and of the memory's bandwidth (0 to 1), by batch. The batches are the
            powers of two up to the largest.
    """

    points: Mapping[int, tuple[float, float]]

    def at(self, batch: int, share: float) -> tuple[float, float]:
        """Return the utilisation of L2 and memory at a batch and a share (percent).

        A batch between two powers of two has a value on the line between theirs. From the largest measured batch
        on, the value is that of this batch.
        """
        low = 1 << (batch.bit_length() - 1)
        high = min(max(self.points), low * 2)
        weight = (batch - low) / (high - low) if high > low else 1.0
        (low_l2, low_dram), (high_l2, high_dram) = self.points[min(low, high)], self.points[high]
        l2 = high_l2 * weight + low_l2 * (1 - weight)
        dram = high_dram * weight + low_dram * (1 - weight)
        return l2 * share / 100.0, dram * share / 100.0


def alpha(constants: Constants, mine: tuple[float, float], other: tuple[float, float]) -> float:
    """Return by which factor the time of a batch grows; the model may give less than 1.

    Args:
        constants: of the GPU.
        mine: the utilisation of L2 and memory by the service that is slowed down.
        other: the same of the neighbour.
    """
    return (
        constants.my_l2 * mine[0]
        + constants.other_l2 * other[0]
        + constants.my_dram * mine[1]
        + constants.other_dram * other[1]
        + constants.base
    )
