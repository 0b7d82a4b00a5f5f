"""Running an agent as a process: its sockets up, its loop going, a clean end."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator

from orion.node_agent.agent import Agent
from orion.node_agent.exposition import MetricsServer
from orion.node_agent.gpus import factory
from orion.node_agent.root import Root
from orion.node_agent.service import AdministratorsServer
from orion.node_agent.settings import AgentSettings

_log = logging.getLogger(__name__)


def run(settings: AgentSettings) -> None:
    """Serve until SIGTERM or SIGINT; clients keep running.

    Raises:
        AgentError: another agent serves the root, or the chosen GPUs cannot be had.
        OSError: a socket or the root cannot be opened.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    asyncio.run(_run(settings))


async def _run(settings: AgentSettings) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with serving(settings):
        await ended.wait()
        _log.info("agent: ends; clients go on under their last grants")


@contextlib.asynccontextmanager
async def serving(settings: AgentSettings) -> AsyncIterator[Agent]:
    """Serve for as long as the context lasts.

    Raises:
        AgentError: another agent serves the root, or the chosen GPUs cannot be had.
        OSError: a socket or the root cannot be opened.
    """
    async with contextlib.AsyncExitStack() as stack:
        root = Root(settings.root)
        stack.callback(root.close)
        agent = Agent(settings, root, factory.choose(settings.gpus, settings.simulated_library))
        stack.callback(agent.stop)
        agent.start()
        looking = asyncio.create_task(agent.run())
        stack.callback(looking.cancel)
        administrators = AdministratorsServer(agent)
        await administrators.start()
        stack.push_async_callback(administrators.stop)
        if settings.metrics_address:
            metrics = MetricsServer(agent, settings.metrics_address)
            await metrics.start()
            stack.push_async_callback(metrics.stop)
        _log.info("agent: serves %s with %d GPUs (%s)", root.path, len(agent.gpus), agent.source.name)
        yield agent
