"""The pods of this node, kept current by a watch: their names, whether they have ended, and the text of their grants.

The agent keeps only a few strings of each pod, whatever its size. The only annotation that it keeps is the grant.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from orion.api_server.paths import PODS
from orion.api_server.requests import ApiServer
from orion.api_server.watching import Watched
from orion.crds.annotations import GRANT
from orion.node_agent.slots.holders import Holder

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
    """ The grant annotation. """

    @property
    def key(self) -> PodName:
        """The pod's name as the kubelet writes it."""
        return self.namespace, self.name


def read(plain: Mapping[str, Any]) -> Pod:
    """Return what is kept of a pod, from the API server's object."""
    metadata = plain["metadata"]
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata.get("creationTimestamp") or "",
        leaving=bool(metadata.get("deletionTimestamp")),
        ended=(plain.get("status") or {}).get("phase") in ("Succeeded", "Failed"),
        grant=(metadata.get("annotations") or {}).get(GRANT),
    )


class Pods:
    """The pods of one node.

    Args:
        server: the API server.
        node: the node's name.
        on_change: called on the event loop when what is kept of a pod has changed.
    """

    def __init__(self, server: ApiServer, node: str, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._watched: Watched[Pod, Iterable[Pod]] = Watched(
            server,
            PODS,
            read,
            tuple,
            by_generation=False,
            query={"fieldSelector": f"spec.nodeName={node}"},
            on_change=self._gather,
        )
        self.known: Mapping[PodName, Pod] = {}
        """ The pods as last received. """

    @property
    def synced(self) -> bool:
        """Whether all pods of the node were received once."""
        return self._watched.synced.is_set()

    def of_uid(self, uid: str) -> Holder | None:
        """Return a pod by its uid; None: no pod of this node has it."""
        pod = next((each for each in self.known.values() if each.uid == uid), None)
        return None if pod is None else Holder(pod.namespace, pod.name, "", pod.uid)

    async def run(self) -> None:
        """Keep the pods current until cancelled."""
        await self._watched.run()

    def _gather(self) -> None:
        known = {pod.key: pod for pod in self._watched.all()}
        if known != self.known or not self._reported:
            self._reported = True
            self.known = known
            self._on_change()

    _reported = False
