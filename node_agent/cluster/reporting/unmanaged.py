"""Finds processes on a GPU that run without the hook, names them in Events, and counts them.

The driver lists every process that has a context on the GPU, and the agent knows every process that has joined. A
process that is only in the driver's list is unmanaged: nothing limits its GPU time. A process gets some time to join,
because its context exists a moment before it joins. After a restart of the agent, its clients first get time to return.
A client that is stopped then cannot return: it gets time to join once it continues. A process that stops later counts:
what it has launched before runs on the GPU all the same.

A client of one GPU can be an unmanaged process on another GPU, because the hook joins each GPU separately. A client's
child process that has its own context joins separately too, so a child of a client can also be unmanaged.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from orion.crds.clients import PodReference
from orion.crds.device_status import UNMANAGED_MAX, UnmanagedProcess
from orion.hook import switching
from orion.node_agent.cluster.reporting import process_pods
from orion.node_agent.cluster.reporting.events import Events, node, pod
from orion.node_agent.cluster.reporting.process_pods import Process
from orion.node_agent.cluster.state import ClusterState
from orion.node_agent.gpus.asking import Questions
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.mps.modes import Modes
from orion.node_agent.pacing.tolerating import periodically
from orion.node_agent.sharing.served import ServesGpus
from orion.node_agent.slots.holders import Holder

_LOOK_SECONDS = _ANSWER_SECONDS = 1.0
_GRACE_SECONDS = 3.0
_NAME_SECONDS = 15.0
""" A pod outside Orion has no name here until the operator has read its uid in the GPU's status. """
_RETURN_SECONDS = 10.0
""" The agent counts no process in this time after its start: clients have 5 s to return, and checks may be late. """
_OF_MPS = ("nvidia-cuda-mps", switching.NAME)
""" The MPS server (the kernel shortens its name), and the process that refreshes the GPU. Both belong to the MPS
daemon. Any process can choose such a name, so the name counts only in the pod of the GPU's control daemon. """


@dataclass(frozen=True)
class Found:
    """An unmanaged process."""

    process: Process
    holder: Holder | None
    """ The process's pod; None: it is in no pod, or the pod is not known. """


class ServesProcesses(ServesGpus, Protocol):
    """What `UnmanagedProcesses` needs from an agent."""

    @property
    def source(self) -> GpuSource:
        """Lists the processes on these GPUs."""

    @property
    def modes(self) -> Modes:
        """Knows which processes belong to the MPS daemon."""


class UnmanagedProcesses:
    """The unmanaged processes on all GPUs of one agent.

    Args:
        agent: knows the clients.
        state: knows the node's pods.
        events: posts an Event about each process.
        node_name: this node's name.
        changed: called on the event loop when the found processes have changed.
    """

    def __init__(
        self, agent: ServesProcesses, state: ClusterState, events: Events, node_name: str, changed: Callable[[], None]
    ) -> None:
        self._agent, self._state, self._events, self._node = agent, state, events, node_name
        self._changed = changed
        self._found: dict[str, tuple[Found, ...]] = {}
        self._since: dict[tuple[str, int, int], float] = {}
        """ When a process without the hook was first seen; by GPU, process id and start time. """
        self._stopped: set[tuple[str, int, int]] = set()
        """ The processes that have been stopped since the clients of the previous agent could return. """
        self._begun = time.monotonic()
        self._questions = Questions[list[Process]]("processes", _ANSWER_SECONDS)

    def of(self, uuid: str) -> tuple[Found, ...]:
        """Return the unmanaged processes on a GPU, sorted by process id."""
        return self._found.get(uuid, ())

    async def run(self) -> None:
        """Check all GPUs at intervals until cancelled."""
        await periodically("unmanaged: a check", _LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Check every GPU once; while the driver does not answer about one, what was found there stays."""
        gpus = [served.shared_gpu.gpu for served in self._agent.gpus.values()]
        processes = await self._questions.ask({gpu.uuid: partial(_processes, self._agent.source, gpu) for gpu in gpus})
        present = {(uuid, each.process_id, each.started): each for uuid, listed in processes.items() for each in listed}
        self._since = {key: since for key, since in self._since.items() if key in present or key[0] not in processes}
        stopped = {key for key, each in present.items() if each.is_stopped}
        if time.monotonic() >= self._begun + _RETURN_SECONDS:
            stopped &= self._stopped
        self._stopped = stopped | {key for key in self._stopped if key[0] not in processes}
        # The agent knows by now which processes joined while the driver was queried.
        new = {uuid: self._unmanaged(uuid, listed) for uuid, listed in processes.items() if uuid in self._agent.gpus}
        if new.items() - self._found.items():
            self._found |= new
            self._changed()
        for uuid, unmanaged in new.items():
            self._name(uuid, unmanaged)

    def _unmanaged(self, uuid: str, listed: list[Process]) -> tuple[Found, ...]:
        now = time.monotonic()
        shared_gpu = self._agent.gpus[uuid].shared_gpu
        known = {client.process_id for client in shared_gpu.clients.values()}
        found = []
        for process in sorted(listed, key=lambda each: each.process_id):
            key = (uuid, process.process_id, process.started)
            if process.process_id in known or key in self._stopped or self._is_of_mps(uuid, process):
                self._since.pop(key, None)
                continue
            since = self._since.setdefault(key, now)
            if now >= max(since + _GRACE_SECONDS, self._begun + _RETURN_SECONDS):
                found.append(Found(process, self._state.pod(process.pod_uid) if process.pod_uid else None))
        return tuple(found)

    def _is_of_mps(self, uuid: str, process: Process) -> bool:
        """Return whether a process belongs to the MPS daemon: by its name, and by the pod of the control daemon."""
        if not process.command.startswith(_OF_MPS):
            return False
        state = self._agent.modes.folder.state(uuid)
        control = process_pods.look_up(state.process_id) if state is not None and state.process_id else None
        return control is not None and control.pod_uid == process.pod_uid

    def _name(self, uuid: str, unmanaged: tuple[Found, ...]) -> None:
        model = self._agent.gpus[uuid].shared_gpu.gpu.model
        for each in unmanaged:
            who = f"process {each.process.process_id} ({each.process.command or 'unnamed'})"
            note = (
                f"{who} uses {uuid} ({model}) without Orion's hook, so Orion limits neither its GPU time nor "
                "its memory. It was started without LD_PRELOAD, is statically linked, or could not load the library: "
                "see its first lines on stderr, let it keep LD_PRELOAD, or mount /etc/ld.so.preload (preload: file)"
            )
            if each.holder is None and each.process.pod_uid:
                since = self._since.get((uuid, each.process.process_id, each.process.started), 0.0)
                if time.monotonic() < since + _NAME_SECONDS:
                    continue
                note = f"{note}; it is in a pod with uid {each.process.pod_uid}, which this agent does not know"
            about = pod(each.holder) if each.holder else node(self._node)
            key = f"{uuid} {each.process.process_id} {each.process.started} {each.holder is not None}"
            self._events.post(about, "ProcessWithoutHook", note, key=key)


def rows(found: tuple[Found, ...]) -> list[UnmanagedProcess]:
    """Return the first UNMANAGED_MAX processes as rows of a status."""
    return [
        UnmanagedProcess(
            process_id=each.process.process_id,
            command=each.process.command,
            pod=_reference(each.holder),
            pod_uid=None if each.holder else each.process.pod_uid or None,
        )
        for each in found[:UNMANAGED_MAX]
    ]


def _reference(holder: Holder | None) -> PodReference | None:
    return PodReference(namespace=holder.namespace, name=holder.pod, uid=holder.uid or None) if holder else None


def _processes(source: GpuSource, gpu: Gpu) -> list[Process]:
    """Return the processes on a GPU that are visible here."""
    return [found for each in set(source.process_ids(gpu)) if (found := process_pods.look_up(each)) is not None]
