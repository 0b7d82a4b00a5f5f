"""Sums what the clients of a process have counted, so that the sums do not fall while the process has a client.

The clients that are threads of one process have one series, and each can leave. Prometheus takes a counter that falls
for one that began at 0 again, and counts once more what is left of it. So what a client that has left has counted stays
in the sum.
"""

from collections.abc import Iterable, Mapping

from orion.node_agent.pages import client_pages
from orion.node_agent.snapshots import ClientView

Labels = tuple[str, ...]
Counts = Mapping[str | int, int]
""" By the name of a field of the record, or by the number of a bucket of waits. """


class ClientCounters:
    """What the clients had counted at the last scrape, and the sums."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Labels, int, int], Counts] = {}
        self._sums: dict[Labels, dict[str | int, int]] = {}

    def take(self, clients: Iterable[tuple[Labels, ClientView]], fields: Iterable[str]) -> Mapping[Labels, Counts]:
        """Return the sums, by the labels of clients.

        Args:
            clients: all clients at this scrape.
            fields: the record's fields that are counters.
        """
        seen: dict[tuple[Labels, int, int], Counts] = {}
        sums: dict[Labels, dict[str | int, int]] = {}
        names = tuple(fields)
        for labels, client in clients:
            key = (labels, client.client_index, client.generation)
            before, total = self._seen.get(key, {}), sums.setdefault(labels, dict(self._sums.get(labels, {})))
            counts = {name: max(count, before.get(name, 0)) for name, count in _counts(client, names).items()}
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count - before.get(name, 0)
            seen[key] = counts
        self._seen, self._sums = seen, sums
        return sums


def _counts(client: ClientView, names: tuple[str, ...]) -> dict[str | int, int]:
    record: client_pages.Record = client.record
    found: dict[str | int, int] = {name: getattr(record, name) for name in names}
    found |= {"busy_ns": client.busy_ns, "gated_ns": record.gated_ns}
    return found | dict(enumerate(record.wait_bucket))
