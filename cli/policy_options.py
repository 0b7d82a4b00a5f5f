"""The options that say how a GPU is shared, as `orion agent`, `orion run` and `orion policy set` take them.

Not given is None, and leaves what is there. The bounds are those of `orion.node_agent.settings`, which has the last
word (an import of it here would cost every `orion --help` the agent's libraries).
"""

from enum import StrEnum
from typing import Annotated, Any

import typer


class PolicyName(StrEnum):
    """How a GPU's clients share it."""

    ORION = "orion"
    GATE = "gate"
    NONE = "none"
    STREAMS = "streams"
    REEF = "reef"
    TICKTOCK = "ticktock"
    ORION_2024 = "orion-2024"


def _option(sentence: str, least: float | None = None, most: float | None = None) -> Any:
    return typer.Option(min=least, max=most, help=sentence, show_default=False)


_US = 60_000_000

Policy = Annotated[
    PolicyName | None,
    _option(
        "orion (at first): be waits while hp is busy, but for what --max-slowdown allows. gate: it always waits. "
        "none: nobody waits. The others are re-implementations of published schedulers, for comparison."
    ),
]
MaxSlowdown = Annotated[
    float | None,
    _option(
        "How much longer hp's work may take than on a GPU of its own, such as 1.2; at first 1: no overlap.", 1, 100
    ),
]
SharingCost = Annotated[
    float | None,
    _option(
        "How much longer hp's work takes for sharing a context (MPS) alone, as measured, such as 1.07; 1: not known.",
        1,
        100,
    ),
]
MinimumShare = Annotated[
    float | None,
    _option("be runs for at least this share of the time, however busy hp is; at first 0: no floor.", 0, 0.5),
]
Window = Annotated[
    int | None,
    _option("Expected be work in flight, in us: what hp may have to wait for; at first 400.", 50, 1_000_000),
]
OverlapSms = Annotated[
    int | None, _option("SMs that long be kernels have while hp is busy; at first 0: half of them.", 0, 65_535)
]
LongKernel = Annotated[
    int | None,
    _option(
        "be kernels longer than this, in us, leave SMs to hp where contexts are shared, and are named; at first 5000.",
        1,
        _US,
    ),
]
LingerFloor = Annotated[
    int | None, _option("hp counts as busy for at least so long, in us, after it drained; at first 50.", 1, 1_000_000)
]
LingerCeiling = Annotated[int | None, _option("And for at most so long; at first 2000.", 1, 1_000_000)]
Depth = Annotated[int | None, _option("reef: be launches queued on the GPU; at first 12.", 1, 4_096)]
Sms = Annotated[int | None, _option("orion-2024: SMs that a be kernel may need beside hp; at first 0: all.", 0, 65_535)]
Duration = Annotated[int | None, _option("orion-2024: be work issued before a drain, in us; at first 160.", 1, _US)]


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given, as plain values."""
    return {
        name: value.value if isinstance(value, StrEnum) else value
        for name, value in options.items()
        if value is not None
    }
