"""Computes the part of the time in which clients were busy or waited at the gate, from counters that only grow.

The ratios cover the last ten seconds or more: people read the status and want the current state without noise. Clients
write the counters themselves, so a ratio is limited to 0..1 for any value of a counter.
"""

import time
from dataclasses import dataclass

from orion.hook import layout
from orion.node_agent.clients.client import ClientKey
from orion.node_agent.snapshots import GpuView

_SPAN_SECONDS = 10.0


@dataclass(frozen=True)
class Ratios:
    """The ratios of one client; None: too little time has passed since it joined. `gated` is always None for hp."""

    busy: float | None = None
    gated: float | None = None


@dataclass
class _Sample:
    at: float
    busy_ns: int
    gated_ns: int
    ratios: Ratios = Ratios()


class ClientRatios:
    """The ratios of one GPU's clients."""

    def __init__(self) -> None:
        self._samples: dict[ClientKey, _Sample] = {}

    def take(self, view: GpuView, now: float | None = None) -> dict[ClientKey, Ratios]:
        """Sample the counters, and return each client's ratios. `now`: in seconds, for tests."""
        now = time.monotonic() if now is None else now
        samples = {}
        for slot in view.slots:
            for client in slot.clients:
                is_hp = slot.role is layout.Role.HP
                busy_ns = client.busy_ns if is_hp else client.record.gpu_ns
                key = (client.client_index, client.generation)
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
