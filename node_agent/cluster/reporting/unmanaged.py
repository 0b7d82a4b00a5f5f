"""Processes on a GPU that are not under the hook: found by the device's own list, named, and counted.

The device lists every process that has a context on it, and the agent knows every process that has joined. Who is on
the first list and not on the second takes GPU time as it likes. A process is given some time to join, as it has its
context a moment earlier; and after a restart of the agent its clients come back first.

A client of one GPU is an unmanaged process on another: the hook joins each GPU by itself. A child of a client that has
a context of its own joins by itself too, so being somebody's child excuses nobody.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from orion.crds.clients import PodReference
from orion.crds.device import UNMANAGED_MAX, UnmanagedProcess
from orion.hook import switching
from orion.node_agent.cluster.reporting import process_pods
from orion.node_agent.cluster.reporting.events import Events, node, pod
from orion.node_agent.cluster.reporting.process_pods import Process
from orion.node_agent.cluster.state import ClusterState
from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.mps.modes import Modes
from orion.node_agent.pacing.tolerating import periodically
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.slots.holders import Holder

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 3.0
_RETURN_SECONDS = 10.0
""" After the agent's start; its clients have five to come back, and looks may be late. """
_OF_MPS = ("nvidia-cuda-mps", switching.NAME)
""" The server, as the kernel cuts its name, and what refreshes the GPU: they are there on the clients' behalf. Anybody
can bear such a name, so it excuses only beside the GPU's control daemon. """


@dataclass(frozen=True)
class Found:
    """An unmanaged process."""

    process: Process
    holder: Holder | None
    """ Its pod, if it is in one that is known. """


class ServesProcesses(Protocol):
    """What is needed of an agent here."""

    @property
    def gpus(self) -> Mapping[str, ServedGpu]:
        """Those that are served."""

    @property
    def source(self) -> GpuSource:
        """Lists the processes that are on them."""

    @property
    def modes(self) -> Modes:
        """Knows which processes are the MPS daemon's."""


class UnmanagedProcesses:
    """Those on all GPUs of one agent.

    Args:
        agent: whose clients are known.
        state: which pods there are.
        events: where they are named.
        node_name: of this node.
        changed: called on the event loop when there are others than before.
    """

    def __init__(
        self, agent: ServesProcesses, state: ClusterState, events: Events, node_name: str, changed: Callable[[], None]
    ) -> None:
        self._agent, self._state, self._events, self._node = agent, state, events, node_name
        self._changed = changed
        self._found: dict[str, tuple[Found, ...]] = {}
        self._since: dict[tuple[str, int, int], float] = {}
        """ When a process without the hook was first seen; by GPU, process and its start. """
        self._begun = time.monotonic()
        self._thread = AskingThread("processes")

    def of(self, uuid: str) -> tuple[Found, ...]:
        """Return those on a GPU, by process id."""
        return self._found.get(uuid, ())

    async def run(self) -> None:
        """Look again and again until cancelled."""
        await periodically("unmanaged: a look", _LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Look at every GPU once; a driver that hangs keeps this waiting, and nothing else."""
        gpus = [served.shared_gpu.gpu for served in self._agent.gpus.values()]
        processes = await asyncio.wrap_future(self._thread.submit(_processes, self._agent.source, gpus))
        # Whoever joined while the device was asked is known by now.
        found = {uuid: self._unmanaged(uuid, there) for uuid, there in processes.items() if uuid in self._agent.gpus}
        present = {(uuid, each.process_id, each.started) for uuid, there in processes.items() for each in there}
        self._since = {key: since for key, since in self._since.items() if key in present}
        if found != self._found:
            self._found = found
            self._changed()
        for uuid, unmanaged in found.items():
            self._name(uuid, unmanaged)

    def _unmanaged(self, uuid: str, there: list[Process]) -> tuple[Found, ...]:
        now = time.monotonic()
        shared_gpu = self._agent.gpus[uuid].shared_gpu
        known = {client.process_id for client in shared_gpu.clients.values()}
        found = []
        for process in sorted(there, key=lambda each: each.process_id):
            key = (uuid, process.process_id, process.started)
            if process.process_id in known or self._is_of_mps(uuid, process):
                self._since.pop(key, None)
                continue
            since = self._since.setdefault(key, now)
            if now >= max(since + _GRACE_SECONDS, self._begun + _RETURN_SECONDS):
                found.append(Found(process, self._state.pod(process.pod_uid) if process.pod_uid else None))
        return tuple(found)

    def _is_of_mps(self, uuid: str, process: Process) -> bool:
        """Return whether it is the MPS daemon's: named so, and in the control daemon's pod, or in none as that."""
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
                f"{who} uses {uuid} ({model}) without Orion's hook, so it takes GPU time and memory as it likes. "
                "It was started without LD_PRELOAD, is statically linked, or could not load the library: see its "
                "first lines on stderr, let it keep LD_PRELOAD, or mount /etc/ld.so.preload (preload: file)"
            )
            if each.holder is None and each.process.pod_uid:
                note = f"{note}; it is in a pod with uid {each.process.pod_uid}, which is not known here"
            about = pod(each.holder) if each.holder else node(self._node)
            key = f"{uuid} {each.process.process_id} {each.process.started}"
            self._events.say(about, "ProcessWithoutHook", note, key=key)


def rows(found: tuple[Found, ...]) -> list[UnmanagedProcess]:
    """Return the first of them as rows of a status."""
    return [
        UnmanagedProcess(process_id=each.process.process_id, command=each.process.command, pod=_reference(each.holder))
        for each in found[:UNMANAGED_MAX]
    ]


def _reference(holder: Holder | None) -> PodReference | None:
    return PodReference(namespace=holder.namespace, name=holder.pod, uid=holder.uid or None) if holder else None


def _processes(source: GpuSource, gpus: list[Gpu]) -> dict[str, list[Process]]:
    """Return the processes on each GPU that can be seen from here."""
    return {
        gpu.uuid: [found for each in set(source.process_ids(gpu)) if (found := process_pods.look_up(each)) is not None]
        for gpu in gpus
    }
