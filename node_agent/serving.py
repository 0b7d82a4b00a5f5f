"""Runs an agent as a process: creates all parts, serves, and ends cleanly."""

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import AsyncIterator, Callable

from orion.node_agent.advertising.advertising import HealthJudge
from orion.node_agent.agent import Agent
from orion.node_agent.driver_limits.applying import DriverLimits
from orion.node_agent.driver_limits.nvml import NvmlLimits
from orion.node_agent.gpus import factory
from orion.node_agent.gpus.hysteresis import Patience
from orion.node_agent.gpus.keeper import HealthKeeper
from orion.node_agent.gpus.nvml import NvmlGpus
from orion.node_agent.metrics.exposition import MetricsText
from orion.node_agent.metrics.families import HealthMetrics
from orion.node_agent.metrics.probes import Probes
from orion.node_agent.processes import undumpable
from orion.node_agent.processes.pod_cgroups import container_cgroup
from orion.node_agent.service.server import AdministratorsServer
from orion.node_agent.settings import AgentSettings
from orion.node_agent.state.root import Root
from orion.shutdown import Shutdown

_log = logging.getLogger(__name__)

_FIRST_LOOK_SECONDS = 11.0
""" How long the start waits for the first check. After this time, the GPUs of a driver that hangs are unhealthy. """


def run(settings: AgentSettings) -> None:
    """Serve until SIGTERM or SIGINT; clients keep running.

    Raises:
        OrionError: another agent serves the root, or the chosen source of GPUs cannot work.
        OSError: a socket or the root cannot be opened.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    undumpable.become()
    asyncio.run(_run(settings))


async def _run(settings: AgentSettings) -> None:
    await Shutdown().run(_serve(settings), "agent: ends; clients continue under their last grants")


async def _serve(settings: AgentSettings) -> None:
    async with serving(settings):
        # A full collection that looks at all modules takes 20 to 40 ms, in which clients and drivers wait.
        gc.collect()
        gc.freeze()
        await asyncio.Event().wait()  # until cancelled


@contextlib.asynccontextmanager
async def serving(settings: AgentSettings) -> AsyncIterator[Agent]:
    """Serve while the `async with` block runs.

    Raises:
        OrionError: another agent serves the root, or the chosen source of GPUs cannot work.
        OSError: a socket or the root cannot be opened.
    """
    in_cluster = _in_cluster() if settings.node_name else None  # takes a second, so do it before sockets are open
    async with contextlib.AsyncExitStack() as stack:
        root = Root(settings.root)
        stack.callback(root.close)
        agent = Agent(settings, root, factory.choose(settings.gpus, settings.simulated_library, root.gpus))
        stack.callback(agent.stop)
        agent.start()
        stack.callback(asyncio.create_task(agent.looking.run()).cancel)
        stack.callback(asyncio.create_task(agent.driver_memory.run()).cancel)
        stack.callback(asyncio.create_task(agent.parking.run()).cancel)
        stack.callback(asyncio.create_task(agent.rules.run()).cancel)
        if settings.driver_memory_limits:
            _hold_limits(agent, stack)
        if settings.serves_plugin:
            await _check_gpus(agent, stack)
        if in_cluster is not None:
            await stack.enter_async_context(in_cluster(agent))
        if settings.serves_plugin:
            # Start this only when the holders are known, because it closes free slots.
            stack.callback(asyncio.create_task(agent.advertising.run()).cancel)
            stack.callback(asyncio.create_task(agent.claims.run()).cancel)
        administrators = AdministratorsServer(agent)
        await administrators.start()
        stack.push_async_callback(administrators.stop)
        if settings.metrics_address:
            await _expose(agent, Probes(agent, administrators), stack)
        agent.limit_returning()
        _log.info("agent: serves %s with %d GPUs (%s)", root.path, len(agent.gpus), agent.source.name)
        yield agent


def _hold_limits(agent: Agent, stack: contextlib.AsyncExitStack) -> None:
    """Let the driver hold the limits of containers, if it is NVIDIA's."""
    if agent.source.name != NvmlGpus.name:
        _log.warning("gpus: --driver-memory-limits has no effect: only NVIDIA's driver has such limits")
        return
    limits = DriverLimits(NvmlLimits(), agent.gpus, container_cgroup)
    stack.callback(limits.close)
    stack.callback(asyncio.create_task(limits.run()).cancel)


async def _expose(agent: Agent, probes: Probes, stack: contextlib.AsyncExitStack) -> None:
    """Serve metrics and probes.

    Raises:
        OSError: the address cannot be used.
    """
    from orion.exposition.answers import Answers  # not at the top: the import of aiohttp takes half a second
    from orion.exposition.server import ExpositionServer

    text = MetricsText(agent)
    stack.callback(text.close)
    server = ExpositionServer(Answers(text.get, probes.unready, probes.unhealthy), agent.settings.metrics_address)
    await server.start()
    stack.push_async_callback(server.stop)


def _in_cluster() -> Callable[[Agent], contextlib.AbstractAsyncContextManager[object]]:
    """Return `in_cluster`. Imported here, because an agent outside a cluster does not need the package."""
    from orion.node_agent.cluster.running import in_cluster

    return in_cluster


async def _check_gpus(agent: Agent, stack: contextlib.AsyncExitStack) -> None:
    """Start the checks of the GPUs' health; return after the first check, so that no unhealthy GPU is advertised."""
    advertising = agent.advertising
    gpus = [served.shared_gpu.gpu for served in agent.gpus.values()]
    patience = Patience(hold_s=agent.settings.recovery_seconds)
    keeper = HealthKeeper(agent.source, gpus, advertising.changed, agent.add_gpu, patience)
    agent.health = keeper
    agent.registry.register(HealthMetrics(keeper))
    first = asyncio.create_task(keeper.look())
    await asyncio.wait([first], timeout=_FIRST_LOOK_SECONDS)
    stack.callback(first.cancel)
    stack.callback(asyncio.create_task(keeper.run()).cancel)
    advertising.slots.mig_enabled = keeper.mig
    advertising.add_judge(HealthJudge(keeper))
    advertising.add_judge(agent.modes)
    stack.callback(asyncio.create_task(agent.modes.run()).cancel)
