"""What part of the time clients were busy or waited, from counters that only grow.

Over the last ten seconds or so: a status is for people, who want to see the present without its noise. The counters are
the clients' own word; whatever they hold, a ratio is between 0 and 1.
"""

import time
from dataclasses import dataclass

from orion.hook import layout
from orion.node_agent.clients.client import ClientKey
from orion.node_agent.snapshots import GpuView

_SPAN_SECONDS = 10.0


@dataclass(frozen=True)
class Ratios:
    """Of one client; None: it has not been here for long enough."""

    busy: float | None = None
    gated: float | None = None


@dataclass
class _Sample:
    at: float
    busy_ns: int
    gated_ns: int
    ratios: Ratios = Ratios()


class ClientRatios:
    """Those of one GPU's clients."""

    def __init__(self) -> None:
        self._samples: dict[ClientKey, _Sample] = {}

    def take(self, view: GpuView, now: float | None = None) -> dict[ClientKey, Ratios]:
        """Take in the counters as they are now, and return each client's ratios."""
        now = time.monotonic() if now is None else now
        samples = {}
        for slot in view.slots:
            for client in slot.clients:
                is_hp = slot.role is layout.Role.HP
                busy_ns = client.busy_ns if is_hp else client.record.gpu_ns
                key = (client.place, client.generation)
                new = _Sample(now, busy_ns, client.record.gated_ns)
                samples[key] = _next(self._samples.get(key), new, is_hp)
        self._samples = samples
        return {key: sample.ratios for key, sample in samples.items()}


def _next(old: _Sample | None, new: _Sample, is_hp: bool) -> _Sample:
    if old is None:
        return new
    elapsed = new.at - old.at
    if elapsed < _SPAN_SECONDS:
        return old
    gated = None if is_hp else _ratio(new.gated_ns - old.gated_ns, elapsed)
    new.ratios = Ratios(_ratio(new.busy_ns - old.busy_ns, elapsed), gated)
    return new


def _ratio(nanoseconds: int, seconds: float) -> float:
    return min(1.0, max(0.0, nanoseconds / (seconds * 1e9)))
