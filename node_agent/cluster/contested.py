"""Slots that the kubelet lists for two pods that both live, which it never should.

For a moment that is in order: the API server hears of a pod's end later than the kubelet gives its device to the next.
So it counts once it has been so for a while.
"""

import time
from collections.abc import Iterable, Mapping

from orion.node_agent.cluster.pod_resources import Claim, SlotKey
from orion.node_agent.cluster.pods import Pod, PodName

_SECONDS = 15.0
""" Longer than the kubelet's word is old at most. """


class Contested:
    """Those of one node."""

    def __init__(self) -> None:
        self._since: dict[tuple[SlotKey, frozenset[PodName]], float] = {}
        self._now: dict[SlotKey, tuple[PodName, ...]] = {}

    def take(self, claimed: Iterable[Claim], pods: Mapping[PodName, Pod], now: float | None = None) -> None:
        """Take in an answer of the kubelet, with the pods as they are; `now` in seconds, for tests."""
        now = time.monotonic() if now is None else now
        listed: dict[SlotKey, set[PodName]] = {}
        for claim in claimed:
            pod = pods.get((claim.namespace, claim.pod))
            if pod is not None and not pod.ended and not pod.leaving:
                listed.setdefault(claim.slot, set()).add(pod.key)
        found = {(slot, frozenset(names)) for slot, names in listed.items() if len(names) > 1}
        self._since = {each: self._since.get(each, now) for each in found}
        self._now = {slot: tuple(sorted(names)) for (slot, names), at in self._since.items() if now - at >= _SECONDS}

    def others(self, slot: SlotKey, holder: PodName) -> tuple[str, ...]:
        """Return the pods that the kubelet lists for a slot beside its holder, as NAMESPACE/NAME."""
        return tuple("/".join(name) for name in self._now.get(slot, ()) if name != holder)
