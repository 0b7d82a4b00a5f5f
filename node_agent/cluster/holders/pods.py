"""The pods of this node as the operator last sent them: their names, whether they have ended, and their grants.

If the operator sends a pod without a grant, no GPUShare can govern the pod now, for example because its share was
deleted. Then the pod keeps the last grant that it had on this node. If it had none, it may not start: otherwise whoever
deletes a share would free its waiting pods of all limits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orion.crds.workloads import NO_REVISION, Revision
from orion.node_agent.cluster.holders.operator_link import OperatorLink
from orion.node_agent.slots.holders import Holder
from orion.node_pods import node_pods_pb2

PodName = tuple[str, str]
""" Namespace and name of a pod. """


@dataclass(frozen=True)
class Pod:
    """What is kept of a pod."""

    namespace: str
    name: str
    uid: str
    created: str
    """ The creation time as the API server writes it. The order of these strings is the order of the times. """

    leaving: bool
    """ The pod has a deletion time. """

    ended: bool
    """ None of its containers runs or will run again. """

    grant: str | None
    """ The text of its grant; None: it never had one on this node. """

    is_static: bool = False
    """ It is the mirror pod of a static pod, which no webhook saw. """

    revision: Revision = NO_REVISION
    """ Its workload and revision, if it is an hp pod that a rolling update may replace. """

    kept: str = ""
    """ Why the share that governs it cannot do so now; empty: it can, or none governs it. """

    @property
    def key(self) -> PodName:
        """The pod's name as the kubelet writes it."""
        return self.namespace, self.name


class Pods:
    """The pods of one node.

    Args:
        link: receives the pods from the operator.
        remembered: the last grants by the pods' uids, as the previous agent saved them.
        on_change: called on the event loop when what is kept of a pod has changed, and after the first message.
    """

    def __init__(self, link: OperatorLink, remembered: Mapping[str, str], on_change: Callable[[], None]) -> None:
        self._link, self._on_change = link, on_change
        self._grants = dict(remembered)
        self.known: Mapping[PodName, Pod] = {}
        """ The pods as last received. """
        self.rollout = NO_REVISION
        """ The revision of a workload for which the node should have one hp slot more; empty: none. """
        self.allocation = ""
        """ Who should give the node's slots, by its label; empty: not known yet, or the nodes do not choose. """
        self.synced = False
        """ Whether all pods of the node were received once. """

    def of_uid(self, uid: str) -> Holder | None:
        """Return a pod by its uid; None: no pod of this node has it."""
        pod = next((each for each in self.known.values() if each.uid == uid), None)
        return None if pod is None else Holder(pod.namespace, pod.name, "", pod.uid)

    async def run(self) -> None:
        """Keep the pods current until cancelled."""
        await self._link.run(self.take)

    def take(self, message: node_pods_pb2.PodsOfNode) -> None:
        """Replace the pods by those of a message."""
        known = {pod.key: pod for pod in map(self._read, message.pods)}
        self._grants = {pod.uid: pod.grant for pod in known.values() if pod.grant}
        rollout, self.allocation = Revision.read(message.rollout), message.allocation
        if known != self.known or rollout != self.rollout or not self.synced:
            self.synced, self.known, self.rollout = True, known, rollout
            self._on_change()

    def _read(self, pod: node_pods_pb2.Pod) -> Pod:
        return Pod(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            created=pod.created,
            leaving=pod.leaving,
            ended=pod.ended,
            grant=pod.grant or self._grants.get(pod.uid),
            is_static=pod.is_static,
            revision=Revision.read(pod.revision),
            kept=pod.kept,
        )
