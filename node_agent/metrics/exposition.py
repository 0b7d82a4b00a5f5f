"""The text that Prometheus reads of an agent: one snapshot for all who wait, made in a thread while joining goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from orion.node_agent import snapshots
from orion.node_agent.metrics import families
from orion.node_agent.service import answers


class _Moment(Collector):
    """A collector of one snapshot."""

    def __init__(self, view: snapshots.AgentView) -> None:
        self._view = view

    def collect(self) -> list[Metric]:
        return list(families.render(self._view, answers.version()))


class SharedText:
    """A text that costs something to make, again for everybody who comes after it was made.

    Whoever asks gets the text that is being made, so however many ask, one is made at a time, and nobody stands in
    line for texts of others. Between two of them is as much rest as the last one took: half of the time at most.

    Args:
        make: makes it; only ever under way once.
    """

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._making: asyncio.Task[bytes] | None = None
        self._rested = 0.0
        """ When the next one may be begun; loop time. """

    async def get(self) -> bytes:
        """Return the text; who gives up waiting takes it from nobody else. Raises what `make` raises."""
        if self._making is None:
            self._making = asyncio.create_task(self._once())
        return await asyncio.shield(self._making)

    def close(self) -> None:
        """Make none any more; who waits for one is cancelled."""
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
    """What is needed of an agent here."""

    @property
    def registry(self) -> CollectorRegistry:
        """Metrics of parts that count for themselves."""


class MetricsText:
    """The metrics of one agent as text.

    Args:
        agent: whose.
    """

    def __init__(self, agent: Scraped) -> None:
        self._agent = agent
        self._shared = SharedText(self._render)

    async def get(self) -> bytes:
        """Return the text of this moment, or of one that has begun."""
        return await self._shared.get()

    def close(self) -> None:
        """Make none any more; who waits for one is cancelled."""
        self._shared.close()

    async def _render(self) -> bytes:
        view = await snapshots.take(self._agent)
        return await asyncio.to_thread(self._text, view)

    def _text(self, view: snapshots.AgentView) -> bytes:
        return exposition.generate_latest(_Moment(view)) + exposition.generate_latest(self._agent.registry)
