"""What each node's agent receives: the pods of its node, with the grants that follow from the shares of this moment."""

import time

from orion.crds.allocation import Allocation
from orion.node_pods.node_pods_pb2 import Pod, PodsOfNode
from orion.operator.reconciler.governance import How
from orion.operator.reconciler.grants import desired_grant
from orion.operator.reconciler.records import PodRecord
from orion.operator.reconciler.state import State

_SLICE_S = 0.01


class PodsOfNodes:
    """Computes the messages from the state. Equal states give equal messages, in every replica."""

    def __init__(self, state: State) -> None:
        self._state = state

    def of(self, node: str) -> PodsOfNode:
        """Return the pods of a node."""
        record, by_node = self._state.nodes.get(node), self._state.allocation is Allocation.BY_NODE
        return PodsOfNode(
            pods=[self._pod(pod) for pod in self._state.pods_of_node(node)],
            rollout=str(record.rollout) if record else "",
            allocation=record.allocation if record and by_node else "",
        )

    def take_changed(self) -> tuple[set[str], bool]:
        """Return the nodes whose message may have changed since the last call, and whether there are more.

        A share may concern thousands of pods, so that the event loop would stand still: one call takes a slice.
        """
        return self._state.take_changed_nodes(time.monotonic() + _SLICE_S), self._state.nodes_behind

    def _pod(self, record: PodRecord) -> Pod:
        # Without a grant in the message, the agent keeps the one that it has.
        applied = self._state.applied(record) if record.slots and not record.leaving else None
        grant = desired_grant(record, *applied) if applied is not None else None
        return Pod(
            namespace=record.at.namespace,
            name=record.at.name,
            uid=record.uid,
            created=record.created,
            leaving=record.leaving,
            ended=record.ended,
            is_static=record.is_static,
            grant=grant or "",
            revision=str(record.revision),
            kept=applied[0].message if applied is not None and record.pin and applied[0].how is How.KEPT else "",
        )
