"""Rates of clients: the growth of their counters, divided by the time between two reads.

A client publishes its launch count a few times a second, with the time of the count. So launches are divided by the
time between two counts. Rejected: dividing by the time between two snapshots. One snapshot would contain two counts
and the next one none, so the figure would jump. The other counters are read when the snapshot is taken.
"""

from dataclasses import dataclass

from orion.node_agent.api import agent_pb2

_STALE_SECONDS = 2.0  # a client that publishes no count for this long is stopped, or gets no CPU

Key = tuple[str, int, int]


@dataclass(frozen=True)
class ClientRates:
    """The rates of one client; None before the second read."""

    launches: float | None = None
    """ Per second. """
    gated: float | None = None
    """ Share of the time spent waiting for hp, 0 to 1. """
    gpu: float | None = None
    """ be: share of the time that the GPU worked for it, 0 to 1. """


@dataclass(frozen=True)
class _Count:
    launches: int
    seconds: float
    rate: float | None = None


class Rates:
    """Computes rates from snapshots, oldest first."""

    def __init__(self) -> None:
        self._before = agent_pb2.Snapshot()
        self._counts: dict[Key, _Count] = {}

    def update(self, now: agent_pb2.Snapshot) -> dict[Key, ClientRates]:
        """Return the rates of all clients of a snapshot by `key`."""
        before, elapsed = dict(_clients(self._before)), now.taken_seconds - self._before.taken_seconds
        found, counts = {}, {}
        for key, client in _clients(now):
            counts[key] = count = self._count(key, client, now.taken_seconds)
            old = before.get(key)
            if old is None or elapsed <= 0:
                found[key] = ClientRates(count.rate)
            else:
                gated = _share(client.gated_seconds - old.gated_seconds, elapsed)
                found[key] = ClientRates(count.rate, gated, _share(client.gpu_seconds - old.gpu_seconds, elapsed))
        self._before, self._counts = now, counts
        return found

    def _count(self, key: Key, client: agent_pb2.Client, now: float) -> _Count:
        last = self._counts.get(key)
        if last is None:
            return _Count(client.launches, client.counted_seconds)
        if (passed := client.counted_seconds - last.seconds) > 0:
            rate = max(0, client.launches - last.launches) / passed
            return _Count(client.launches, client.counted_seconds, rate)
        return last if now - last.seconds < _STALE_SECONDS else _Count(last.launches, last.seconds, 0.0)


def key(gpu: agent_pb2.Gpu, client: agent_pb2.Client) -> Key:
    """Return an identity of a client, distinct also from earlier clients with the same index."""
    return gpu.uuid, client.place, client.generation


def _clients(snapshot: agent_pb2.Snapshot) -> list[tuple[Key, agent_pb2.Client]]:
    return [(key(gpu, client), client) for gpu in snapshot.gpus for slot in gpu.slots for client in slot.clients]


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))
