"""The agent's answers to the kubelet's probes.

The kubelet ends an agent that is said not to be healthy. So that is only said where the next one would be better off:
nobody looks after the GPUs; a socket is gone that processes or the device plugin come by; the driver was replaced,
and this process has loaded the library of the one before. (An event loop that is stuck says nothing, which the kubelet
takes for the same.) A driver that hangs, an API server or a kubelet that is away, a full disk: the next agent would
find them too, and know less.

A rolling update goes on to the next node when an agent is ready: when it has heard once from everybody whom it needs.
Later silences take that back no more; what was known stands through them.
"""

from pathlib import Path
from typing import Protocol

from orion.node_agent.gpus.interface import GpuSource
from orion.node_agent.sharing.looking import Looking
from orion.node_agent.sharing.served import Serves

_LOOK_SECONDS = 30.0
""" The GPUs are looked at twice a second and more. """


class Probed(Serves, Protocol):
    """What is needed of an agent here."""

    @property
    def looking(self) -> Looking:
        """Looks after its GPUs."""

    @property
    def source(self) -> GpuSource:
        """Where its GPUs come from."""


class Socket(Protocol):
    """A socket in the agent's root."""

    @property
    def path(self) -> Path:
        """Where it lies."""

    @property
    def is_there(self) -> bool:
        """Whether its path still leads to it."""


class Probes:
    """The answers of one agent; empty texts are good news.

    Args:
        agent: whose.
        administrators: the socket of its service.
    """

    def __init__(self, agent: Probed, administrators: Socket) -> None:
        self._agent, self._administrators = agent, administrators
        self._heard = False

    def unhealthy(self) -> str:
        """Return why a restart would help, as a sentence."""
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
        """Return what the agent still waits for, or why it is not healthy, as a sentence."""
        waits = "" if self._heard else self._agent.holders.waits_for()
        self._heard = not waits
        return self.unhealthy() or waits
