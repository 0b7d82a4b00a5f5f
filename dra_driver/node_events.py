"""Posts an Event about the node while its GPUs must not be offered to claims.

Then the node has no ResourceSlice that could say why. People look at the node first, and not at the driver's log.
"""

import hashlib
import logging
from datetime import UTC, datetime

from orion.api_server.requests import ApiError, ApiServer

_log = logging.getLogger(__name__)

_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
""" Events about objects without a namespace are in this one. """
_NOTE_MAX = 1_024
""" The maximum length of an Event's note, in bytes. """
_CONFLICT = 409


class NodeEvents:
    """The Events of one driver about its node.

    Args:
        server: the API server.
        node: the node's name.
    """

    def __init__(self, server: ApiServer, node: str) -> None:
        self._server, self._node = server, node
        self._posted = ""

    async def post(self, reason: str, note: str) -> None:
        """Post an Event, unless the last one had this reason. A failure is logged, and the next call tries again.

        The Event's name contains a hash of reason and note, so the API server rejects it for the hour that it keeps
        the Event of an earlier driver.

        Args:
            reason: one CamelCase word.
            note: what is wrong, and what to do next.
        """
        if self._posted == reason:
            return
        name = f"{self._node[:200].rstrip('-.')}.{hashlib.sha256(f'{reason} {note}'.encode()).hexdigest()[:16]}"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning",
            "reason": reason,
            "action": "Publish",
            "note": note.encode()[:_NOTE_MAX].decode(errors="ignore"),
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node},
            "reportingController": "orion.gpu/dra-driver",
            "reportingInstance": self._node[:128],
        }
        try:
            await self._server.post(_EVENTS, body)
        except ApiError as error:
            if error.status != _CONFLICT:
                _log.warning("an Event cannot be posted (%s): %s: %s", error, reason, note)
                return
        self._posted = reason

    def over(self) -> None:
        """The problem has ended: the next call of `post` posts again."""
        self._posted = ""
