"""The GPUs of the state, found by their node and by the pods that their status names."""

from collections import defaultdict
from collections.abc import Iterable

from orion.operator.reconciler.claims import discard_from
from orion.operator.reconciler.records import DeviceRecord, Named, PodRecord
from orion.operator.reconciler.usage import Usage, named_pods, usage


class Devices:
    """The records of all GPUs."""

    def __init__(self) -> None:
        self.records: dict[str, DeviceRecord] = {}
        self._of_pod: dict[Named, set[str]] = defaultdict(set)
        self._of_node: dict[str, set[str]] = defaultdict(set)

    def put(self, record: DeviceRecord) -> None:
        """Add a GPU that is not there."""
        self.records[record.name] = record
        for pod in named_pods(record):
            self._of_pod[pod].add(record.name)
        if record.status.node:
            self._of_node[record.status.node].add(record.name)

    def drop(self, name: str) -> DeviceRecord | None:
        """Remove a GPU, and return it; None: it is not there."""
        record = self.records.pop(name, None)
        if record is None:
            return None
        for pod in named_pods(record):
            discard_from(self._of_pod, pod, name)
        if record.status.node:
            discard_from(self._of_node, record.status.node, name)
        return record

    def of_node(self, node: str) -> list[DeviceRecord]:
        """Return a node's GPUs, sorted by name."""
        return [self.records[name] for name in sorted(self._of_node.get(node, ()))]

    def usage(self, pods: Iterable[PodRecord]) -> Usage:
        """Return what the node agents report about pods, without the pods that leave."""
        wanted = list(pods)
        names = sorted({name for pod in wanted for name in self._of_pod.get(pod.at, ())})
        return usage(wanted, [self.records[name] for name in names])
