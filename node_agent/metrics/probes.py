"""The agent's answers to the kubelet's probes.

The kubelet restarts an agent that reports itself unhealthy. So the agent reports this only if a restart helps: the loop
that checks the GPUs has stopped; a socket that processes or the device plugin need is gone; or the driver was replaced,
and this process has loaded the old library. (If the event loop hangs, there is no answer, which the kubelet treats in
the same way.) A restart does not help if the driver hangs, the operator or the kubelet does not answer, or the disk
is full: the next agent would have the same problem and know less.

A rolling update continues with the next node when this agent is ready. It is ready when the kubelet and the operator
have each answered once. If one of them stops answering later, the agent stays ready, since the last answer stays valid.
"""

from pathlib import Path
from typing import Protocol

from orion.node_agent.gpus.interface import GpuSource
from orion.node_agent.sharing.looking import Looking
from orion.node_agent.sharing.served import Serves

_LOOK_SECONDS = 30.0
""" The GPUs are normally checked at least twice a second. """


class Probed(Serves, Protocol):
    """What `Probes` needs from an agent."""

    @property
    def looking(self) -> Looking:
        """The loop that checks the GPUs."""

    @property
    def source(self) -> GpuSource:
        """The source of the GPUs."""


class Socket(Protocol):
    """A socket in the agent's root."""

    @property
    def path(self) -> Path:
        """The socket's path."""

    @property
    def is_there(self) -> bool:
        """Whether this socket still exists at its path."""


class Probes:
    """The answers of one agent; an empty text means healthy, or ready.

    Args:
        agent: the agent.
        administrators: the socket of the gRPC service.
    """

    def __init__(self, agent: Probed, administrators: Socket) -> None:
        self._agent, self._administrators = agent, administrators
        self._was_ready = False

    def unhealthy(self) -> str:
        """Return why a restart would help, in one sentence; empty: the agent is healthy."""
        unseen = self._agent.looking.seconds_since
        if unseen > _LOOK_SECONDS:
            return f"the agent has not checked its GPUs for {unseen:.0f} s"
        if not self._administrators.is_there:
            return f"the socket {self._administrators.path} is gone"
        for uuid, gpu in self._agent.gpus.items():
            if (name := gpu.joining.gone()) is not None:
                return f"the socket of slot {name} of GPU {uuid} is gone"
        return self._agent.source.needs_restart()

    def unready(self) -> str:
        """Return what the agent still waits for, or why it is unhealthy, in one sentence; empty: it is ready."""
        waits = "" if self._was_ready else self._agent.holders.waits_for()
        self._was_ready = not waits
        return self.unhealthy() or waits
