"""The ResourceClaimTemplates of pods whose claim the webhook has made: the operator makes them, and removes them.

A template is made when a pod that names it waits for a node, and again while one does, less and less often: somebody
may have deleted the template, and the API server answers "exists" at little cost. So the operator needs no watch of
templates. Once no pod names a template, the operator removes it with the next resync. A pod that names it just then
waits a few seconds longer.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from orion.api_server.requests import METADATA_LIST, ApiError, ApiServer
from orion.crds.claims import TEMPLATE_LABEL, TEMPLATES, path_in
from orion.operator.reconciler.records import Named, PodRecord

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 10.0, 120.0
_BURST_S = 1.0
""" Pods that come at once lead to one request in this time. """
_GONE, _CHANGED = 404, 409

_LOG = logging.getLogger(__name__)


class Templates:
    """Which pods name which template."""

    def __init__(self) -> None:
        self._pods: dict[Named, dict[str, PodRecord]] = defaultdict(dict)
        """ By template, the pods that name it and have not ended, by name. """
        self._made: dict[Named, tuple[float, float]] = {}
        """ By template, when this process last made it, and the pause until it does so again; monotonic seconds. """

    def place(self, old: PodRecord | None, new: PodRecord | None) -> set[Named]:
        """Keep the index; return the template that a pod now waits for."""
        if old is not None and old.template:
            at = Named(old.at.namespace, old.template)
            self._pods[at].pop(old.at.name, None)
            if not self._pods[at]:
                del self._pods[at]
                self._made.pop(at, None)
        if new is None or not new.template or new.ended:
            return set()
        at = Named(new.at.namespace, new.template)
        self._pods[at][new.at.name] = new
        if not _waits(new):
            return set()
        if (old is None or old.uid != new.uid) and at in self._made:
            self._made[at] = self._made[at][0], _BURST_S
        return {at}

    def shape(self, at: Named) -> str | None:
        """Return the shape of a template that a pod waits for; None: none does."""
        return next((pod.shape for pod in self._pods.get(at, {}).values() if _waits(pod)), None)

    def pause(self, at: Named, now: float) -> float:
        """Return how long to wait before a template is made; 0: it is made now, and the next pause is longer."""
        last, pause = self._made.get(at, (float("-inf"), 0.0))
        if (left := last + pause - now) > 0:
            return left
        self._made[at] = now, min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * pause))
        return 0.0

    def failed(self, at: Named) -> None:
        """Learn that a template could not be made: the next `pause` is 0."""
        self._made.pop(at, None)

    def waiting(self, at: Named) -> list[PodRecord]:
        """Return the pods that wait for a template."""
        return [pod for pod in self._pods.get(at, {}).values() if _waits(pod)]

    def wanted(self) -> list[Named]:
        """Return the templates that a pod waits for."""
        return [at for at in tuple(self._pods) if self.shape(at) is not None]

    def is_named(self, at: Named) -> bool:
        """Return whether a pod names a template."""
        return bool(self._pods.get(at))


async def remove_unused(api: ApiServer, templates: Templates, mine: Callable[[], bool]) -> None:
    """Remove the operator's templates that no pod names.

    Args:
        api: the API server.
        templates: the templates that pods name; all pods must be known.
        mine: returns whether this process may write now.

    Raises:
        ApiError: the API server does not answer.
    """
    async for page in api.pages(TEMPLATES, METADATA_LIST, labelSelector=TEMPLATE_LABEL):
        for each in page["items"]:
            at = Named(each["metadata"]["namespace"], each["metadata"]["name"])
            if mine() and not templates.is_named(at):
                await _remove(api, at, each["metadata"])


async def _remove(api: ApiServer, at: Named, seen: Mapping[str, Any]) -> None:
    try:
        await api.delete(path_in(at.namespace, TEMPLATES, at.name), as_seen=seen)
    except ApiError as error:
        if error.status not in (_GONE, _CHANGED):
            raise
    else:
        _LOG.info("template %s is removed: no pod names it", "/".join(at))


def _waits(pod: PodRecord) -> bool:
    return not pod.node and not pod.leaving
