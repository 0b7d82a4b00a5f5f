"""Makes the metrics' text for Prometheus. All waiting scrapes share one text, which a thread renders."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.node_agent import snapshots
from orion.node_agent.metrics import families
from orion.node_agent.metrics.client_counters import ClientCounters
from orion.node_agent.service import answers


class _Moment(Collector):
    """A collector of one snapshot."""

    def __init__(self, view: snapshots.AgentView, counters: ClientCounters) -> None:
        self._view, self._counters = view, counters

    def collect(self) -> list[Metric]:
        return list(families.render(self._view, answers.version(), self._counters))


class SharedText:
    """A text that is expensive to make, shared by all callers that wait for it.

    A caller gets the text that is being made, or starts a new text. So only one text is made at a time, whatever the
    number of callers, and no caller waits in a queue. After each text comes a pause that is as long as the text took,
    so making texts takes at most half of the time.

    Args:
        make: makes the text; never called concurrently.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._making: asyncio.Task[bytes] | None = None
        self._rested = 0.0
        """ When the next text may be started; in the event loop's time. """

    async def get(self) -> bytes:
        """Return the text. A caller that stops waiting does not affect others. Raises what `make` raises."""
        if self._making is None:
            self._making = asyncio.create_task(self._once())
        return await asyncio.shield(self._making)

    def close(self) -> None:
        """Make no more texts; waiting callers are cancelled."""
        if self._making is not None:
            self._making.cancel()

    async def _once(self) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(self._rested - loop.time())
            began = loop.time()
            try:
                return await self._make()
            finally:
                self._rested = 2 * loop.time() - began
        finally:
            self._making = None


class Scraped(snapshots.Seen, Protocol):
    """What `MetricsText` needs from an agent."""

    @property
    def registry(self) -> CollectorRegistry:
        """Metrics of parts that have their own collectors."""


class MetricsText:
    """The metrics of one agent as text.

    Args:
        agent: the agent.
    """

    def __init__(self, agent: Scraped) -> None:
        self._agent, self._counters = agent, ClientCounters()
        self._shared = SharedText(self._render)

    async def get(self) -> bytes:
        """Return the current text, or one that is being made already."""
        return await self._shared.get()

    def close(self) -> None:
        """Make no more texts; waiting callers are cancelled."""
        self._shared.close()

    async def _render(self) -> bytes:
        view = await snapshots.take(self._agent)
        return await asyncio.to_thread(self._text, view)

    def _text(self, view: snapshots.AgentView) -> bytes:
        return exposition.generate_latest(_Moment(view, self._counters)) + exposition.generate_latest(
            self._agent.registry
        )
