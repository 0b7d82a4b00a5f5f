"""What a context takes of a GPU's memory: the driver's own memory for a process, which its hook does not count.

The agent learns it from what the driver says that processes hold. A client that makes its context is charged so much
until the driver has listed it. Of the first client nobody knows it. That client has its context when it first asks for
credit, which each hook does before its first allocation. So it waits, for a bounded time, until the driver has said
what it holds then. A process that the driver does not list teaches nothing: it may have asked without a context.
"""

import time
from collections.abc import Iterable

from orion.node_agent.clients.client import Client

LEAST_MIB = 16
""" Less is what the driver rounds up, as where contexts take nothing (the simulated GPU). """
_MOST_MIB = 1024
""" More is what a process hides: it must not keep later ones from allocating. """
_PATIENCE_NS = 1_000_000_000
""" For so long the first client waits for the driver. """


class ContextMemory:
    """What is known of the contexts of one GPU."""

    def __init__(self) -> None:
        self._mib: int | None = None

    @property
    def expected_mib(self) -> int:
        """What a context takes at least; 0: nothing, or unknown."""
        return self._mib or 0

    def awaits_driver(self, client: Client) -> bool:
        """Return whether a client that asks for credit has to wait until the driver has said what its context takes."""
        if self._mib is not None or client.returned:
            return False
        now = time.monotonic_ns()
        client.wished_ns = client.wished_ns or now
        return client.wished_ns > 0 and now - client.wished_ns < _PATIENCE_NS

    @staticmethod
    def answered(clients: Iterable[Client], asked_ns: int) -> list[Client]:
        """Return the clients that waited when the driver was asked; they wait no longer."""
        found = [each for each in clients if 0 < each.wished_ns < asked_ns]
        for client in found:
            client.wished_ns = -1
        return found

    def learn(self, contexts_mib: Iterable[int]) -> None:
        """Note what the driver holds beyond what the hooks of some processes count."""
        least = min(contexts_mib, default=None)
        if least is not None:
            self._mib = min(least, _MOST_MIB) if least >= LEAST_MIB else 0
