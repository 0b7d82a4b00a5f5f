"""Which nodes' pods, or the grants of these, may have changed since the last look: their agents need a message."""

from collections import defaultdict
from collections.abc import Mapping

from orion.operator.reconciler.claims import discard_from
from orion.operator.reconciler.namespaces import Namespace
from orion.operator.reconciler.records import Named, PodRecord


class ChangedNodes:
    """The pods of each node, and the nodes that have changed.

    Args:
        namespaces: the namespaces of the state; their changes of shares change nodes.
    """

    def __init__(self, namespaces: Mapping[str, Namespace]) -> None:
        self._namespaces = namespaces
        self._pods: dict[str, set[Named]] = defaultdict(set)
        self._changed: set[str] = set()
        self._changed_namespaces: set[str] = set()

    def pods(self, node: str) -> list[PodRecord]:
        """Return the pods of a node, sorted by namespace and name."""
        return [self._namespaces[at.namespace].pods[at.name] for at in sorted(self._pods.get(node, ()))]

    def place(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Note that a pod has changed, has come (`old` is None) or has gone (`new` is None)."""
        if old is not None and old.node:
            discard_from(self._pods, old.node, old.at)
            self._changed.add(old.node)
        if new is not None and new.node:
            self._pods[new.node].add(new.at)
            self._changed.add(new.node)

    def add(self, node: str) -> None:
        """Note that a node has changed."""
        self._changed.add(node)

    def add_nodes_of(self, namespace: str) -> None:
        """Note that shares of a namespace have changed: its nodes follow when the changes have been applied."""
        self._changed_namespaces.add(namespace)

    def wait_for(self, pod: PodRecord) -> None:
        """Note that the grant of a pod is unknown while its namespace is behind: its node follows then."""
        self._namespaces[pod.at.namespace].stale.add(pod.node)
        self._changed_namespaces.add(pod.at.namespace)

    def take(self, until: float) -> set[str]:
        """Return the nodes that have changed, each change once.

        Args:
            until: the monotonic time until which changes of shares are applied. Namespaces that are then still behind
                come with a later call; `behind` says so.
        """
        nodes, self._changed = self._changed, set()
        for namespace in tuple(self._changed_namespaces):
            space = self._namespaces.get(namespace)
            if space is not None:
                space.advance(until)
                if space.behind:
                    continue
                nodes |= space.stale
                space.stale = set()
            self._changed_namespaces.discard(namespace)
        return nodes

    @property
    def behind(self) -> bool:
        """Whether the last `take` left something for the next one."""
        return bool(self._changed_namespaces)
