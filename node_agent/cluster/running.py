"""Starts and ends the parts of the agent that run only in a cluster.

All parts share one session to the API server and one connection to the kubelet. A part that fails is logged and started
again. GPUs, sockets and clients do not depend on these parts.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Protocol

from orion.api_server.credentials import find_access
from orion.api_server.kubeconfigs import NoCluster
from orion.api_server.metrics import RequestMetrics
from orion.api_server.requests import ApiServer
from orion.errors import NotFound
from orion.node_agent.advertising.ownership import OwnerFile, Ownership
from orion.node_agent.agent import Agent
from orion.node_agent.cluster.context import Context
from orion.node_agent.cluster.handing_over import HandingOver
from orion.node_agent.cluster.holders.holders import ClusterHolders
from orion.node_agent.cluster.holders.operator_link import OperatorAddress, OperatorLink
from orion.node_agent.cluster.node_labels import NodeLabels
from orion.node_agent.cluster.pod_resources import PodResources
from orion.node_agent.cluster.reporting.reporting import Reporting

_log = logging.getLogger(__name__)

_PROGRAM = "orion-agent"
_AGAIN_SECONDS = 5.0


class Part(Protocol):
    """Something that an agent does only in a cluster."""

    async def run(self) -> None:
        """Run until cancelled."""


@contextlib.asynccontextmanager
async def in_cluster(agent: Agent) -> AsyncIterator[ClusterHolders]:
    """Run as the agent of a cluster's node while the context lasts.

    Raises:
        NotFound: no API server is configured.
    """
    settings = agent.settings
    to = OperatorAddress(settings.operator, settings.operator_address, settings.operator_token)
    try:
        access = find_access(settings.kubeconfig)
    except NoCluster as error:
        raise NotFound(f"--node-name makes this the agent of a cluster's node, but {error}") from None
    async with contextlib.AsyncExitStack() as stack:
        server = ApiServer(access, _PROGRAM, RequestMetrics(agent.registry, "orion_cluster_api"))
        stack.push_async_callback(server.close)
        resources = PodResources(settings.pod_resources)
        stack.push_async_callback(resources.close)
        holders = ClusterHolders(agent, OperatorLink(server, to), resources)
        agent.holders = holders
        holders.start()
        context = Context(agent, settings.node_name, server, holders, resources)
        parts: list[Part] = [holders, NodeLabels(context), Reporting(context)]
        if settings.by_node:
            parts.append(_handing_over(agent, holders, resources))
        else:
            agent.root.owner.unlink(missing_ok=True)  # later agents must not take it for the present state
        tasks = [asyncio.create_task(_forever(part)) for part in parts]
        stack.push_async_callback(_end, tasks)
        _log.info("agent: runs for node %s, API server %s", settings.node_name, access.url)
        yield holders


def _handing_over(agent: Agent, holders: ClusterHolders, resources: PodResources) -> HandingOver:
    """Let the node's label say who gives slots. The judge comes last: any other reason is worth more to people."""
    file = OwnerFile(agent.root.owner)
    ownership = Ownership(file.read(), file.write, agent.settings.handover_seconds, time.monotonic())
    agent.advertising.ownership = ownership
    agent.advertising.add_judge(ownership)
    return HandingOver(agent, holders, resources, ownership)


async def _forever(part: Part) -> None:
    while True:
        try:
            await part.run()
        except Exception:
            _log.exception("cluster: %s failed and is started again", type(part).__name__)
        await asyncio.sleep(_AGAIN_SECONDS)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
