"""The ResourceClaimTemplates of pods whose claim the webhook has made: the operator makes them, and removes them.

A template is made when a pod that names it waits for a node, and again every few seconds while one does: somebody may
have deleted the template, and the API server answers "exists" at little cost. So the operator needs no watch of
templates. Once no pod names a template, the operator removes it with the next resync. A pod that names it just then
waits a few seconds longer.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from orion.api_server.requests import METADATA_LIST, ApiError, ApiServer
from orion.crds.claims import TEMPLATE_LABEL, TEMPLATES, template_path
from orion.operator.reconciler.records import Named, PodRecord

AGAIN_SECONDS = 10.0
_GONE, _CHANGED = 404, 409

_LOG = logging.getLogger(__name__)


class Templates:
    """Which pods name which template."""

    def __init__(self) -> None:
        self._pods: dict[Named, dict[str, PodRecord]] = defaultdict(dict)
        """ By template, the pods that name it and have not ended, by name. """

    def place(self, old: PodRecord | None, new: PodRecord | None) -> set[Named]:
        """Keep the index; return the template that a pod now waits for."""
        if old is not None and old.template:
            at = Named(old.at.namespace, old.template)
            self._pods[at].pop(old.at.name, None)
            if not self._pods[at]:
                del self._pods[at]
        if new is None or not new.template or new.ended:
            return set()
        at = Named(new.at.namespace, new.template)
        self._pods[at][new.at.name] = new
        return {at} if _waits(new) else set()

    def shape(self, at: Named) -> str | None:
        """Return the shape of a template that a pod waits for; None: none does."""
        return next((pod.shape for pod in self._pods.get(at, {}).values() if _waits(pod)), None)

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
        await api.delete(template_path(at.namespace, at.name), as_seen=seen)
    except ApiError as error:
        if error.status not in (_GONE, _CHANGED):
            raise
    else:
        _LOG.info("template %s is removed: no pod names it", "/".join(at))


def _waits(pod: PodRecord) -> bool:
    return not pod.node and not pod.leaving
