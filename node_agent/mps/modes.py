"""The mode of each GPU, and how the agent changes it: the agent's side of mode `mps`.

The agent changes a mode when no slot of the GPU is held and no process has joined. From then until the control daemon
runs (or has ended), no container may start on the GPU, so no container starts during a change. A process gets its mode
when it starts. The mode depends on whether a control daemon listens in the folder that every container has. So the
kubelet's copy of an answer to Allocate stays correct after a change, and all containers of one GPU have the same mode.

There is one exception: a running container can start a process while the control daemon is down (half a second after
the daemon died; longer if it does not start again). No part of Orion can delay that process, so it runs in `timeslice`
beside later clients in `mps`. When such processes have joined, the agent sees that their modes differ and reports
MixedContexts.

A change that fails must not block pods. If no MPS daemon runs on the node, the MPS programs are missing, or the control
daemon does not start, the agent withdraws the request after a while, tries again later, and the GPU continues in
`timeslice`. Only if clients may still be present does a GPU stay closed to new containers until its control daemon
runs.

After a reboot a GPU returns to its previous mode before its pods' containers start. Their slots are held, but none of
their processes runs yet. Kubernetes does not order the pods of a node, so these containers wait, with a time limit, for
the MPS daemon.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from orion.errors import Conflict
from orion.node_agent.advertising.advertising import FINE, AdvertisesGpus, Verdict
from orion.node_agent.mps import pending
from orion.node_agent.mps.control import empty
from orion.node_agent.mps.folder import MpsFolder, Phase, State, Wanted
from orion.node_agent.mps.pending import Pending
from orion.node_agent.pacing.tolerating import periodically
from orion.node_agent.sharing.served import Serves
from orion.node_agent.state.root import Root

_log = logging.getLogger(__name__)

Mode = Literal["timeslice", "mps"]

_LOOK_SECONDS = 0.25
_GIVE_UP_SECONDS, _GIVE_UP_FAILURES = 15.0, 3
""" The agent gives up a control daemon after this time, or after this number of consecutive failures. """
_AGAIN_SECONDS = (15.0, 600.0)
""" The pause between two tries: the first and the longest. """
PATIENCE_SECONDS = 2.0
""" How long a container's start waits for a change before it fails; the kubelet then tries again. """
_UNKNOWN_SECONDS = 10.0
""" How long a container's start waits for the requested mode. The time begins with the first agent after a boot. """
_BACK_SECONDS = 60.0
""" How long after a boot a container's start waits for the MPS daemon if the GPU was in mode mps. The daemon's pod
starts at the same time as all other pods. """


@dataclass
class _Gpu:
    wanted: Mode = "timeslice"
    known: bool = False
    """ Whether the agent has read the requested mode. """
    back: bool = False
    """ The GPU was in mode mps before this agent, and no container has started since: held slots block no change. """
    started: bool = False
    """ Whether a container has started on the GPU since this agent started. """
    began: float = 0.0
    """ When the GPU's control daemon was requested or last seen running (monotonic, in s); 0: not requested. """
    tried: int = 0
    """ Consecutive changes that failed. """
    not_before: float = 0.0
    failure: Pending | None = None
    """ Why the last change failed; None: it did not fail. """
    reported: tuple[object, ...] = field(default_factory=tuple)


class ServesModes(Serves, AdvertisesGpus, Protocol):
    """What `Modes` needs from an agent."""

    @property
    def root(self) -> Root:
        """The root directory; it contains the folder of the MPS daemon."""


class Modes:
    """The modes of one agent's GPUs; also a judge: a change of the mode closes a GPU to new pods (advertising.py).

    Args:
        agent: the agent whose GPUs these are.
        names: returns the names of the holders of a GPU's slots, for messages.
    """

    def __init__(self, agent: ServesModes, names: Callable[[str], list[str]] = lambda uuid: []) -> None:
        self._agent = agent
        self.folder = MpsFolder(agent.root.path)
        self.names = names
        self._gpus: dict[str, _Gpu] = {}
        self._asked = self.folder.wanted()
        """ The requests to the MPS daemon by GPU; includes those of a previous agent. """
        self._began = time.monotonic()
        self._first = bool(agent.settings.node_name) and not agent.root.state.exists()
        """ Whether this is the first agent since the node's boot. Such an agent waits for the requested modes. """
        for uuid in self._asked:
            self._gpus[uuid] = _Gpu(wanted="mps", began=self._began)

    # -- What is requested ---------------------------------------------------------------------------------------------

    def want(self, uuid: str, mode: Mode, before: Mode = "timeslice") -> None:
        """Set the requested mode of a GPU.

        Args:
            uuid: the GPU's UUID.
            mode: `spec.mode` of its GPUDevice.
            before: `status.mode` of its GPUDevice; only the first call for a GPU uses it.
        """
        gpu = self._gpu(uuid)
        if gpu.known and gpu.wanted == mode:
            return
        in_mps_before = mode == "mps" and before == "mps" and uuid not in self._asked
        gpu.back = in_mps_before and not gpu.known and not gpu.started
        gpu.known, gpu.wanted = True, mode
        gpu.failure, gpu.tried, gpu.not_before = None, 0, 0.0
        self.look()

    # -- The current state ---------------------------------------------------------------------------------------------

    def mode(self, uuid: str) -> Mode:
        """Return the mode that a process gets if it starts on a GPU now."""
        state = self._state(uuid)
        return "mps" if state is not None and state.phase is Phase.RUNNING else "timeslice"

    def pending(self, uuid: str) -> Pending | None:
        """Return why a GPU is not in the requested mode; None: it is."""
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
        """Return whether the GPU is closed to new pods: during a change, and while its control daemon does not run."""
        why = self._closed(uuid)
        return FINE if why is None else Verdict(cordoned=True, reason=f"Mode{why.reason}", message=why.message)

    async def settled(self, uuid: str, patience: float = PATIENCE_SECONDS) -> None:
        """Return when a container may start on a GPU.

        Args:
            uuid: the GPU's UUID.
            patience: how many seconds to wait at most.

        Raises:
            Conflict: a container may not start yet; the kubelet tries again.
        """
        deadline = time.monotonic() + patience
        while (why := self._closed(uuid) or self._unknown(uuid)) is not None:
            self.look()
            if (left := deadline - time.monotonic()) <= 0:
                if why is pending.UNKNOWN:
                    break  # the API server does not answer: containers start in the current mode
                raise Conflict(f"the mode of GPU {uuid} does not let a container start now: {why.message}")
            await asyncio.sleep(min(left, _LOOK_SECONDS))
        gpu = self._gpu(uuid)
        gpu.back, gpu.started = False, True

    # -- Changing the mode ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out the requested changes until cancelled."""
        await periodically("mps: a check", _LOOK_SECONDS, self.look)

    def look(self) -> None:
        """Make each requested change that is possible now."""
        for uuid in list(self._agent.gpus):
            gpu = self._gpu(uuid)
            try:
                self._look(uuid, gpu)
            except OSError as error:
                gpu.failure = Pending("NotAvailable", f"the folder {self.folder.path} cannot be used: {error}")
            self._notify(uuid, gpu)

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
        elif asked and self._has_failed(gpu, state, now) and self._free(uuid, gpu):
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
            if not self.folder.daemon_lives():  # remove a killed daemon's socket: CUDA would fail if it finds one
                empty(self.folder.clients(uuid))
        _log.info(
            "mps: %s: %s", uuid, "requests a control daemon" if wanted else "withdraws the request for a control daemon"
        )

    def _notify(self, uuid: str, gpu: _Gpu) -> None:
        now = (self.mode(uuid), self._closed(uuid))
        if now != gpu.reported:
            if gpu.reported and gpu.reported[0] != now[0]:
                _log.info("mps: %s is now in mode %s", uuid, now[0])
            gpu.reported = now
            self._agent.advertising.changed()

    # -- Questions about one GPU ---------------------------------------------------------------------------------------

    def _gpu(self, uuid: str) -> _Gpu:
        gpu = self._gpus.get(uuid)
        if gpu is None:
            gpu = self._gpus[uuid] = _Gpu(known=not self._first)
        return gpu

    def _state(self, uuid: str) -> State | None:
        return self.folder.state(uuid)

    def _closed(self, uuid: str) -> Pending | None:
        """Return why no container may start on a GPU now; None: containers may start."""
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

    def _has_failed(self, gpu: _Gpu, state: State | None, now: float) -> bool:
        if state is not None and state.phase is Phase.RUNNING:
            return False
        failures = state.failures if state is not None else 0
        return now - gpu.began > _GIVE_UP_SECONDS or failures >= _GIVE_UP_FAILURES

    def _free(self, uuid: str, gpu: _Gpu) -> bool:
        """Return whether no container or process would be affected by a change."""
        shared_gpu, slots = self._agent.gpus[uuid].shared_gpu, self._agent.advertising.slots
        if shared_gpu.clients or shared_gpu.awaited:
            return False
        if gpu.back and gpu.wanted == "mps":
            return True
        if uuid in self._asked and self._is_without_daemon(gpu):
            return True
        return self._agent.holders.certain and not any(slots.in_use(slot) for slot in shared_gpu.slots.values())

    def _is_without_daemon(self, gpu: _Gpu) -> bool:
        """Return whether the node's MPS daemon has been gone for long: held slots then have no MPS client."""
        return time.monotonic() - gpu.began > _GIVE_UP_SECONDS and not self.folder.daemon_lives()
