"""Which mode each GPU is in, and how it comes into another: the agent's side of mode mps.

A change is carried out when nobody is there: no slot is held, no process has joined. From then until the control daemon
runs (or has ended) no container may start on the GPU, so none finds half of a change. The mode of a process is decided
when it starts, by whether a control daemon listens in the folder that every container has; so what the kubelet keeps of
an Allocate stays right through every change. Containers of one GPU are never in different modes. A process is, for its
life, that a running container starts while the control daemon is down (for half a second after its death, longer where
it does not come up): nobody is asked before it, so it runs in timeslice beside the clients that come later. Those who
have joined are seen to differ, and the GPU says MixedContexts.

What keeps nobody waiting: a change that does not succeed (no MPS daemon on the node, no MPS programs, a control daemon
that does not come up) is taken back after a while and tried again later, and the GPU goes on in timeslice. Only where
clients may still be there does a GPU stay closed to new containers until its control daemon runs again.

After a reboot a GPU comes back into the mode that it had before its pods' containers start: their slots are held, but
nothing of them runs yet. Nothing else orders the node's pods, so they wait, for a while, for the MPS daemon's.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from orion.node_agent.advertising.advertising import FINE, Advertising, Verdict
from orion.node_agent.errors import Conflict
from orion.node_agent.mps import pending
from orion.node_agent.mps.control import empty
from orion.node_agent.mps.folder import MpsFolder, Phase, State, Wanted
from orion.node_agent.mps.pending import Pending
from orion.node_agent.pacing.tolerating import periodically
from orion.node_agent.settings import AgentSettings
from orion.node_agent.sharing.served import Serves
from orion.node_agent.state.root import Root

_log = logging.getLogger(__name__)

Mode = Literal["timeslice", "mps"]

_LOOK_SECONDS = 0.25
_GIVE_UP_SECONDS, _GIVE_UP_FAILURES = 15.0, 3
""" A control daemon that has not come up by then, or has failed so often in a row, will not for now. """
_AGAIN_SECONDS = (15.0, 600.0)
""" Between two tries; longer each time. """
PATIENCE_SECONDS = 2.0
""" A container's start waits so long for a change; the kubelet tries again later. """
_UNKNOWN_SECONDS = 10.0
""" So long after a boot's first agent began, starts wait to hear which mode is wanted. """
_BACK_SECONDS = 60.0
""" And so long for the MPS daemon of a GPU that was in mode mps: its pod starts when all of the node's do. """


@dataclass
class _Gpu:
    wanted: Mode = "timeslice"
    known: bool = False
    """ Somebody has said what is wanted. """
    back: bool = False
    """ It was in mode mps before this agent, and nothing has started since: slots that are held do not count. """
    started: bool = False
    """ A container has started on it under this agent. """
    began: float = 0.0
    """ When its control daemon was asked for, or was last seen to run (monotonic); 0: it is not wanted. """
    tried: int = 0
    """ Changes in a row that did not succeed. """
    not_before: float = 0.0
    failure: Pending | None = None
    """ Of the last try. """
    said: tuple[object, ...] = field(default_factory=tuple)


class ServesModes(Serves, Protocol):
    """What is needed of an agent here."""

    @property
    def root(self) -> Root:
        """Where the folder of the modes lies."""

    @property
    def settings(self) -> AgentSettings:
        """How it was started."""

    @property
    def advertising(self) -> Advertising:
        """Knows which slots are in use, and hears of changes."""


class Modes:
    """The modes of one agent's GPUs; a judge of what is offered.

    Args:
        agent: whose.
        names: names those who hold slots of a GPU, for people.
    """

    def __init__(self, agent: ServesModes, names: Callable[[str], list[str]] = lambda uuid: []) -> None:
        self._agent = agent
        self.folder = MpsFolder(agent.root.path)
        self.names = names
        self._gpus: dict[str, _Gpu] = {}
        self._asked = self.folder.wanted()
        """ What is asked of the MPS daemon; of an agent before this one, too. """
        self._began = time.monotonic()
        self._first = bool(agent.settings.node_name) and not agent.root.state.exists()
        """ No agent was here since the node's boot, and this one will learn which mode is wanted. """
        for uuid in self._asked:
            self._gpus[uuid] = _Gpu(wanted="mps", began=self._began)

    # -- What is wanted ------------------------------------------------------------------------------------------------

    def want(self, uuid: str, mode: Mode, before: Mode = "timeslice") -> None:
        """Say which mode a GPU shall be in.

        Args:
            uuid: the GPU's.
            mode: as its GPUDevice says.
            before: the mode that its GPUDevice says it was in; it counts when this is first said.
        """
        gpu = self._gpu(uuid)
        if gpu.known and gpu.wanted == mode:
            return
        in_mps_before = mode == "mps" and before == "mps" and uuid not in self._asked
        gpu.back = in_mps_before and not gpu.known and not gpu.started
        gpu.known, gpu.wanted = True, mode
        gpu.failure, gpu.tried, gpu.not_before = None, 0, 0.0
        self.look()

    # -- What is so ----------------------------------------------------------------------------------------------------

    def mode(self, uuid: str) -> Mode:
        """Return the mode of a process that starts on a GPU now."""
        state = self._state(uuid)
        return "mps" if state is not None and state.phase is Phase.RUNNING else "timeslice"

    def pending(self, uuid: str) -> Pending | None:
        """Return why a GPU is not in the mode that is wanted; None: it is."""
        gpu, state = self._gpu(uuid), self._state(uuid)
        asked = uuid in self._asked
        if gpu.wanted == "mps" and asked and state is not None and state.phase is Phase.RUNNING:
            return None
        if gpu.wanted == "timeslice" and not asked and state is None:
            return None
        if gpu.wanted == "mps" and asked:
            return pending.coming(self.folder, state)
        if gpu.wanted == "timeslice" and not asked:
            return pending.ENDING
        if gpu.failure is not None:
            return gpu.failure
        if gpu.wanted == "mps" and not self.folder.daemon_lives():
            return pending.NOT_AVAILABLE
        return pending.clients_present(gpu.wanted, self.names(uuid), self._agent.holders.certain)

    def verdict(self, uuid: str) -> Verdict:
        """Return whether the GPU is closed to new pods: while its mode changes, and while it cannot be what it is."""
        why = self._closed(uuid)
        return FINE if why is None else Verdict(cordoned=True, reason=f"Mode{why.reason}", message=why.message)

    async def settled(self, uuid: str, patience: float = PATIENCE_SECONDS) -> None:
        """Return when a container may start on a GPU.

        Args:
            uuid: the GPU's.
            patience: seconds within which it must have become so.

        Raises:
            Conflict: it may not yet; the kubelet tries again.
        """
        deadline = time.monotonic() + patience
        while (why := self._closed(uuid) or self._unknown(uuid)) is not None:
            self.look()
            if (left := deadline - time.monotonic()) <= 0:
                if why is pending.UNKNOWN:
                    break  # no API server: as with a dead agent, pods go on under what was last known
                raise Conflict(f"the mode of GPU {uuid} does not let a container start now: {why.message}")
            await asyncio.sleep(min(left, _LOOK_SECONDS))
        gpu = self._gpu(uuid)
        gpu.back, gpu.started = False, True

    # -- Carrying it out -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out what is wanted until cancelled."""
        await periodically("mps: a look", _LOOK_SECONDS, self.look)

    def look(self) -> None:
        """Do what can be done now for each GPU."""
        for uuid in list(self._agent.gpus):
            gpu = self._gpu(uuid)
            try:
                self._look(uuid, gpu)
            except OSError as error:
                gpu.failure = Pending("NotAvailable", f"the folder {self.folder.path} refuses: {error}")
            self._tell(uuid, gpu)

    def _look(self, uuid: str, gpu: _Gpu) -> None:
        asked, now = uuid in self._asked, time.monotonic()
        state = self._state(uuid)
        if asked and state is not None and state.phase is Phase.RUNNING:
            gpu.began, gpu.tried, gpu.back, gpu.failure = now, 0, False, None
        if gpu.wanted == "mps" and not asked:
            if now >= gpu.not_before and self.folder.daemon_lives() and state is None and self._free(uuid, gpu):
                self._ask(uuid, True)
                gpu.began, gpu.failure = now, None
        elif gpu.wanted == "timeslice" and asked and self._free(uuid, gpu):
            self._ask(uuid, False)
        elif asked and self._hopeless(gpu, state, now) and self._free(uuid, gpu):
            gpu.failure = pending.failed(self.folder, state, _GIVE_UP_SECONDS)
            gpu.not_before = now + min(_AGAIN_SECONDS[0] * 2**gpu.tried, _AGAIN_SECONDS[1])
            gpu.tried, gpu.back = gpu.tried + 1, False
            self._ask(uuid, False)

    def _ask(self, uuid: str, wanted: bool) -> None:
        simulated = self._agent.gpus[uuid].shared_gpu.gpu.simulated
        self.folder.want(uuid, Wanted(simulated) if wanted else None)
        if wanted:
            self._asked[uuid] = Wanted(simulated)
        else:
            self._asked.pop(uuid, None)
            if not self.folder.daemon_lives():  # of one that was killed: whoever finds its socket cannot begin
                empty(self.folder.clients(uuid))
        _log.info("mps: %s: %s", uuid, "its control daemon is asked for" if wanted else "no control daemon any more")

    def _tell(self, uuid: str, gpu: _Gpu) -> None:
        now = (self.mode(uuid), self._closed(uuid))
        if now != gpu.said:
            if gpu.said and gpu.said[0] != now[0]:
                _log.info("mps: %s is now in mode %s", uuid, now[0])
            gpu.said = now
            self._agent.advertising.changed()

    # -- Answers of parts ----------------------------------------------------------------------------------------------

    def _gpu(self, uuid: str) -> _Gpu:
        gpu = self._gpus.get(uuid)
        if gpu is None:
            gpu = self._gpus[uuid] = _Gpu(known=not self._first)
        return gpu

    def _state(self, uuid: str) -> State | None:
        return self.folder.state(uuid)

    def _closed(self, uuid: str) -> Pending | None:
        """Return why no container may start on a GPU; None: they may."""
        asked, state = uuid in self._asked, self._state(uuid)
        if asked:
            running = state is not None and state.phase is Phase.RUNNING
            return None if running else pending.coming(self.folder, state)
        if state is not None:
            return pending.ENDING
        if self._gpu(uuid).back and time.monotonic() < self._began + _BACK_SECONDS:
            return pending.coming(self.folder, None)
        return None

    def _unknown(self, uuid: str) -> Pending | None:
        if self._gpu(uuid).known or uuid in self._asked or time.monotonic() > self._began + _UNKNOWN_SECONDS:
            return None
        return pending.UNKNOWN

    def _hopeless(self, gpu: _Gpu, state: State | None, now: float) -> bool:
        if state is not None and state.phase is Phase.RUNNING:
            return False
        failures = state.failures if state is not None else 0
        return now - gpu.began > _GIVE_UP_SECONDS or failures >= _GIVE_UP_FAILURES

    def _free(self, uuid: str, gpu: _Gpu) -> bool:
        """Return whether nobody is there whom a change could meet."""
        shared_gpu, slots = self._agent.gpus[uuid].shared_gpu, self._agent.advertising.slots
        if shared_gpu.clients or shared_gpu.awaited:
            return False
        if gpu.back and gpu.wanted == "mps":
            return True
        if uuid in self._asked and self._is_without_daemon(gpu):
            return True
        return self._agent.holders.certain and not any(slots.in_use(slot) for slot in shared_gpu.slots.values())

    def _is_without_daemon(self, gpu: _Gpu) -> bool:
        """Return whether the node's MPS daemon is long gone: slots that are held then hold nothing of it."""
        return time.monotonic() - gpu.began > _GIVE_UP_SECONDS and not self.folder.daemon_lives()
