"""Sends the be processes of a suite off the GPU and back again, all the time: `--parks`.

Each file of the suite has a slot of its own, since the processes of one slot leave together or not at all. A test must
end in the same way, in whatever call of the driver its process has to leave.
"""

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from orion.bench.managed import ManagedGPU
from orion.errors import Unavailable
from orion.node_agent.api import agent_pb2

LOOK_SECONDS = 0.05
STAY_SECONDS = 0.3
AWAY_SECONDS = 0.15
SLOT = {"memory_parks": True, "memory_limit_bytes": 12 << 30}


@dataclass
class Stays:
    """What the slots did so far.

    Attributes:
        left: How often a slot left the GPU.
        returned: How often one came back.
        refused: How often one did not leave or come back, by the agent's reason.
        longest: For how long a slot was in each state at most, in seconds.
    """

    left: int = 0
    returned: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)  # when a slot was first seen on the GPU, since it came back
    _returning: set[str] = field(default_factory=set)

    def record(self) -> dict[str, Any]:
        """Return the raw data."""
        longest = {state: round(seconds, 2) for state, seconds in sorted(self.longest.items())}
        refused = dict(self.refused.most_common())
        return {"left": self.left, "returned": self.returned, "refused": refused, "longest_s": longest}

    def sentence(self) -> str:
        """Return the result in one sentence."""
        reasons = "".join(f"; {number} times: {reason}" for reason, number in self.refused.most_common())
        return f"be slots left the GPU {self.left} times and came back {self.returned} times{reasons}"

    def look(self, gpu: ManagedGPU) -> None:
        """Send each slot off that has been on the GPU for STAY_SECONDS, and back each that has left it."""
        with suppress(Unavailable):  # the agent may be busy; the next look comes soon
            for slot in gpu.snapshot().slots:
                if slot.memory_parks:
                    self._move(gpu, slot, time.monotonic())

    def _move(self, gpu: ManagedGPU, slot: agent_pb2.Slot, now: float) -> None:
        parking = slot.parking
        if parking.state and slot.clients:
            self.longest[parking.state] = max(parking.seconds, self.longest.get(parking.state, 0.0))
        if not slot.clients or parking.state in ("refused", "lost"):
            self._since.pop(slot.name, None)
            self._returning.discard(slot.name)
            if parking.wished:
                self.refused.update([parking.reason] if slot.clients else [])
                gpu.park(slot.name, away=False)
        elif parking.wished:
            if parking.state == "parked" and parking.seconds >= AWAY_SECONDS:
                self.left += 1
                self._returning.add(slot.name)
                gpu.park(slot.name, away=False)
        elif parking.state == "":
            if slot.name in self._returning:
                self.returned += 1
                self._returning.remove(slot.name)
            if now - self._since.setdefault(slot.name, now) >= STAY_SECONDS:
                del self._since[slot.name]
                gpu.park(slot.name, away=True)
