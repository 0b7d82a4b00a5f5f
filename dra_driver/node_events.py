"""Posts an Event about the node while its GPUs must not be offered to claims.

Then the node has no ResourceSlice that could say why. People look at the node first, and not at the driver's log.
"""

import logging

from orion.api_server.events import event, event_name, path_of
from orion.api_server.requests import ApiError, ApiServer

_log = logging.getLogger(__name__)

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
        name = event_name(self._node, f"{reason} {note}")
        regarding = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}
        body = event(name, regarding, True, reason, "Publish", note, "orion.gpu/dra-driver", self._node)
        try:
            await self._server.post(path_of(body), body)
        except ApiError as error:
            if error.status != _CONFLICT:
                _log.warning("an Event cannot be posted (%s): %s: %s", error, reason, note)
                return
        self._posted = reason

    def over(self) -> None:
        """The problem has ended: the next call of `post` posts again."""
        self._posted = ""
