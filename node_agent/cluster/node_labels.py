"""Keeps the labels of this node in a file, for settings that go by labels (crds/configuration_file.py).

The agent asks for its node once a minute, and only if the configuration has such settings. It has no right to watch
nodes: RBAC cannot restrict a watch to one node.
"""

import asyncio
import logging
import random

from orion.api_server.paths import NODES
from orion.api_server.requests import ApiError
from orion.crds.configuration_file import LABELS_FILE, write_labels
from orion.node_agent.cluster.context import Context

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_AGAIN_S = 60.0
_LOOK_S = 2.0
""" The pause between two looks whether labels are needed, and the longest pause after the first failure. """

_log = logging.getLogger(__name__)


class NodeLabels:
    """The labels of this node."""

    def __init__(self, context: Context) -> None:
        self._slots, self._server = context.agent.advertising.slots, context.server
        self._node, self._path = context.node, context.agent.root.path / LABELS_FILE
        self._complaint = ""

    async def run(self) -> None:
        """Follow the node's labels until cancelled."""
        retry = _LOOK_S
        while True:
            if not self._slots.needs_labels:
                await asyncio.sleep(_LOOK_S)
            elif await self._ask():
                retry = _LOOK_S
                await asyncio.sleep(_AGAIN_S)
            else:
                await asyncio.sleep(random.uniform(retry / 2, retry))
                retry = min(2 * retry, _AGAIN_S)

    async def _ask(self) -> bool:
        """Write the node's labels; return whether that has succeeded."""
        try:
            # Version 0: the API server answers from its cache.
            node = await self._server.get(f"{NODES}/{self._node}", _METADATA, resourceVersion="0")
            write_labels(self._path, node["metadata"].get("labels") or {})
        except (ApiError, OSError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.warning("cluster: the labels of this node are not known, the agent asks again: %s", error)
            return False
        self._complaint = ""
        return True
