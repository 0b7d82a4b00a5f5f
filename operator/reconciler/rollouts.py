"""The hp pods that rolling updates replace, by workload, and which node was offered to which new pod.

The state keeps this index. `rollout_labels` decides from it.
"""

from collections import defaultdict
from collections.abc import Iterator

from orion.crds.workloads import Revision
from orion.operator.reconciler.records import Named, PodRecord

WINDOW_S = 60.0
""" How long a node is open for a new pod, and so closed for all other hp pods. A kubelet reports a new slot within
10 s, and the scheduler tries a pod again within 10 s after that. """

AGAIN_S = 600.0
""" After this time the node may be offered to the same pod again. """

UNUSED_MAX = 3
""" How often in `AGAIN_S` a node is opened for new pods of a workload of which none is scheduled there. """

ENDS_S = 120.0
""" The longest time that the label stays after the window, for a kubelet that reports nothing. """


SLICE_S = 10.0
""" How long the label stays after the window on a node that gives claims. The operator does not see when the node's
slice is current; the driver writes it within 3 s, and the scheduler reads it at once. """


class Rollouts:
    """The index. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._pods: defaultdict[str, dict[Named, PodRecord]] = defaultdict(dict)
        self._offers: dict[str, dict[str, float]] = {}
        """ By the uid of a new pod, and by node: since when the node is offered to the pod. """
        self._opened: dict[str, float] = {}
        """ By node, since when it is open. Further pods that wait do not keep it open longer. """
        self._unused: dict[tuple[str, str], list[float]] = {}
        """ By workload and node, when the node was opened since a pod of the workload was last scheduled there. """
        self._ends: dict[str, float] = {}
        """ By node, since when the label says that the rollout ends. """

    def leads(self) -> None:
        """Forget all offers: this process has just taken the Lease, and each node that is open is so from now on.

        While no process held the Lease, for example because the API server was away, no pod could use its offer.
        """
        self._offers, self._opened, self._ends = {}, {}, {}

    def place(self, old: PodRecord | None, new: PodRecord | None) -> set[str]:
        """Replace a pod; return the nodes whose label may have to change."""
        if old is not None and old.revision.workload:
            self._pods[old.revision.workload].pop(old.at, None)
            if not self._pods[old.revision.workload]:
                del self._pods[old.revision.workload]
            if new is None or new.uid != old.uid:
                self._offers.pop(old.uid, None)
        if new is not None and new.revision.workload and not new.leaving:
            self._pods[new.revision.workload][new.at] = new
            if old is not None and new.node and not old.node:
                self._scheduled(new)
        return self._concerned(old, new)

    def _scheduled(self, pod: PodRecord) -> None:
        """Note that an offer was used: by the pod that had it, or by another pod of its revision."""
        self._unused.pop((pod.revision.workload, pod.node), None)
        for each in self._pods[pod.revision.workload].values():
            if not each.node:
                self._offers.get(each.uid, {}).pop(pod.node, None)

    def _concerned(self, old: PodRecord | None, new: PodRecord | None) -> set[str]:
        before, after = _facts(old), _facts(new)
        if before == after:
            return set()
        nodes = {pod.node for pod in (old, new) if pod is not None and pod.revision.workload and pod.node}
        if _waits(old) != _waits(new) and (pod := new or old) is not None:
            nodes |= {each.node for each in self._pods.get(pod.revision.workload, {}).values() if each.running}
        return nodes

    def predecessors(self, pod: PodRecord) -> Iterator[PodRecord]:
        """Yield the running pods that this pod may replace: those of other revisions of its workload."""
        for each in self._pods.get(pod.revision.workload, {}).values():
            if each.running and each.node and pod.revision.replaces(each.revision):
                yield each

    def waiting(self, workload: str) -> list[PodRecord]:
        """Return the pods of a workload's newest revision that no node has room for, oldest first.

        While pods of several revisions wait, somebody has scaled the workload in the middle of a rolling update. Then
        the revision whose oldest pod is the youngest is the newest.
        """
        pods = sorted(self._pods.get(workload, {}).values(), key=lambda each: (each.created, each.at))
        first: dict[str, int] = {}
        for age, pod in enumerate(pods):
            first.setdefault(pod.revision.template, age)
        found = [each for each in pods if each.unschedulable and not each.node]
        newest = max((first[each.revision.template] for each in found), default=None)
        return [each for each in found if first[each.revision.template] == newest]

    def expected(self, revision: Revision, node: str, now: float) -> Iterator[tuple[PodRecord, float]]:
        """Yield the pods to which the node is offered or which are scheduled there, and when the offer ends.

        After a restart of the operator, pods that wait are adopted: the node's label says that it is offered to them.
        """
        adopts = node not in self._opened
        opened = self._opened.setdefault(node, now)
        for pod in list(self._pods.get(revision.workload, {}).values()):
            offers = self._offers.get(pod.uid, {})
            is_offered = pod.node == node or (not pod.node and pod.unschedulable and (adopts or node in offers))
            if pod.revision == revision and is_offered and not pod.running:
                since = self._offers.setdefault(pod.uid, offers).setdefault(node, opened)
                if now - since < WINDOW_S:
                    yield pod, since + WINDOW_S - now

    def wait(self, pod: PodRecord, node: str, now: float) -> float:
        """Return after how many seconds a node may be offered to a pod; 0: now."""
        offers = self._offers.get(pod.uid, {})
        waits = [since + WINDOW_S - now for name, since in offers.items() if name != node]
        since = offers.get(node)
        if since is not None and now - since >= WINDOW_S:
            waits.append(since + AGAIN_S - now)
        unused = [each for each in self._unused.get((pod.revision.workload, node), ()) if now - each < AGAIN_S]
        if len(unused) >= UNUSED_MAX:
            waits.append(unused[0] + AGAIN_S - now)
        return max([0.0, *waits])

    def offer(self, pod: PodRecord, node: str, now: float) -> None:
        """Note that a node is offered to a pod."""
        offers = self._offers.setdefault(pod.uid, {})
        if now - offers.get(node, float("-inf")) >= AGAIN_S:
            offers[node] = now
            self._unused = {key: times for key, times in self._unused.items() if now - times[-1] < AGAIN_S}
            key = (pod.revision.workload, node)
            self._unused[key] = [*self._unused.get(key, ()), now][-UNUSED_MAX:]
        self._opened[node] = offers[node]

    def ending(self, node: str, now: float) -> float:
        """Return for how long the label of a node has said that the rollout ends."""
        return now - self._ends.setdefault(node, now)

    def ended(self, node: str) -> None:
        """Forget when the last rollout on a node ended."""
        self._ends.pop(node, None)
        self._opened.pop(node, None)


def _waits(pod: PodRecord | None) -> bool:
    return pod is not None and pod.unschedulable and not pod.node and not pod.leaving


def _facts(pod: PodRecord | None) -> object:
    return None if pod is None else (pod.uid, pod.revision, pod.node, pod.running, pod.leaving, pod.unschedulable)
