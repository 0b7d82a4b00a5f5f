"""The agent: it makes its parts, finds and serves GPUs, and takes over what the previous agent left."""

import asyncio
import logging

from prometheus_client import CollectorRegistry

from orion.errors import Unavailable
from orion.node_agent.advertising.advertising import Advertising
from orion.node_agent.advertising.claims import Claims
from orion.node_agent.clients.counters import Counters
from orion.node_agent.clients.jobs import Jobs
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.gpus.asking import AskingThreads
from orion.node_agent.gpus.interface import Gpu, GpuSource
from orion.node_agent.gpus.keeper import HealthKeeper
from orion.node_agent.gpus.simulated import SimulatedGpus
from orion.node_agent.gpus.usage import MemoryUsage
from orion.node_agent.mps.modes import Modes
from orion.node_agent.pages import descriptors, policy_words
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.parking.parking import Parking
from orion.node_agent.processes.host_memory import HostMemory
from orion.node_agent.processes.pod_cgroups import HIERARCHY
from orion.node_agent.resource_files.applying import Rules
from orion.node_agent.settings import AgentSettings
from orion.node_agent.sharing.driver_memory import DriverMemory
from orion.node_agent.sharing.joint import Agreement
from orion.node_agent.sharing.looking import Looking
from orion.node_agent.sharing.saved_gpus import SavedGpus
from orion.node_agent.sharing.served import ServedGpu
from orion.node_agent.sharing.slot_operations import SLOTS_MAX, SlotOperations
from orion.node_agent.sharing.turn_lengths import TurnLengths
from orion.node_agent.slots import knowledge
from orion.node_agent.slots.holders import Holders, NoHolders
from orion.node_agent.state.root import Root
from orion.node_agent.state.state_file import RememberedGpu, StateFile

_log = logging.getLogger(__name__)

_RETURN_SECONDS, _RETURN_STEPS = 5.0, 20
""" How long clients of the previous agent can return, and in how many steps that time passes. """
_STEPS_TO_ASK_AGAIN = 4
""" In this time a hook that got no answer asks again: 0.5 s later, and that of hp looks every 0.25 s. """
_EXTENSIONS_MAX = 10
""" Others wait for clients that may return, such as those that need memory of the same slot. """


class Agent:
    """The agent of one root directory. Create it inside a running event loop.

    Args:
        settings: the agent's settings.
        root: the root directory; this process holds its lock.
        source: finds the GPUs.
    """

    def __init__(self, settings: AgentSettings, root: Root, source: GpuSource) -> None:
        self.settings = settings
        self.root = root
        self.source = source
        self.usage = MemoryUsage(source)
        self.health: HealthKeeper | None = None
        """ None: health is not checked, because no device plugin depends on this agent. """
        self.registry = CollectorRegistry()
        """ Metrics of parts that have their own collectors. """
        self.counters = Counters()
        self._state = StateFile(root.state)
        self._saved = SavedGpus(self._state)
        self.gpus = self._saved.by_uuid
        self._jobs, self._agreement = Jobs(self._saved.save_every), Agreement()
        self.holders: Holders = NoHolders()
        self.advertising = Advertising(self)
        self.claims = Claims(self)
        self.modes = Modes(self)
        self.advertising.mode_of = self.modes.mode
        self.looking = Looking(self.gpus, self.save_all)
        self._memory_threads = AskingThreads("memory")
        self.driver_memory = DriverMemory(source, self.gpus, self._memory_threads)
        memory = _host_memory(settings, source)
        self.parking = Parking(source, self.gpus, self._memory_threads, settings, self._saved.save_some, memory)
        self.slots = SlotOperations(self._saved, root, self.parking)
        self.rules = Rules(self, settings.resource_config)
        self._loop = asyncio.get_running_loop()
        self._share_soon = False
        self._pending_max = 16

    def start(self) -> None:
        """Open the sockets of all slots, including the previous agent's slots: their clients may return.

        Raises:
            OSError: a socket cannot be opened.
        """
        limit, remembered, found = descriptors.raise_limit(), self._state.read(), self._found()
        slots = max([1, *(len(self.advertising.slots.wanted(gpu)) for gpu in found)])
        self._pending_max = max(16, min(256, limit // (4 * slots * max(1, len(found)))))
        for gpu in found:
            self._serve(gpu, remembered.pop(gpu.uuid, None))
        self.rules.look()
        for uuid in remembered:
            _log.warning("gpu: %s was served by the previous agent and is gone; its clients are removed", uuid)
        self.save_all()

    def limit_returning(self) -> None:
        """Start the time in which clients of the previous agent can return. Call it when all sockets are ready."""
        self._await_further(_RETURN_STEPS)

    def _await_further(self, steps: int, extensions: int = _EXTENSIONS_MAX) -> None:
        """Let clients return for so many steps, and after a late one at least for the time in which they ask again.

        While the agent does not run, as on a machine whose cores are all busy, no client can return. So of such a time
        only one step counts.
        """
        step = _RETURN_SECONDS / _RETURN_STEPS
        ends = self._loop.time() + step

        def ended() -> None:
            is_late = self._loop.time() > ends + step
            if is_late and extensions and steps <= _STEPS_TO_ASK_AGAIN:
                self._await_further(_STEPS_TO_ASK_AGAIN, extensions - 1)
            elif steps > 1:
                self._await_further(steps - 1, extensions)
            else:
                self._stop_awaiting()

        self._loop.call_at(ends, ended)

    def _found(self) -> list[Gpu]:
        try:
            return self.source.find()
        except Unavailable as error:
            _log.warning("gpus: none for now: %s", error)
            return []

    def stop(self) -> None:
        """Close everything; clients continue."""
        self.save_all()
        self.usage.close()
        self._memory_threads.close()
        self.source.close()
        self.slots.stop()
        for gpu in self.gpus.values():
            gpu.stop()
        self.gpus.clear()
        self._jobs.close()

    def add_gpu(self, gpu: Gpu) -> None:
        """Serve a GPU that was found after the start, or update the description of a served one.

        Slots that cannot be opened now are opened later.
        """
        if gpu.uuid in self.gpus:
            self.gpus[gpu.uuid].shared_gpu.gpu = gpu
        else:
            try:
                self._serve(gpu, None)
            except OSError as error:
                _log.error("gpu: %s: not all of its slots can be opened: %s", gpu.uuid, error)
            self.save_all()
        self.advertising.changed()

    def gpu(self, uuid: str) -> ServedGpu:
        """Return a GPU.

        Raises:
            NotFound: this machine has no such GPU.
        """
        return self._saved.find(uuid)

    def set_policy(self, uuid: str, policy: Policy) -> ServedGpu:
        """Change the policy of a GPU.

        Raises:
            NotFound: there is no such GPU.
            Invalid: the policy makes a promise to hp that cannot be kept.
        """
        gpu = self.gpu(uuid)
        gpu.set_policy(policy)
        self.save(gpu)
        return gpu

    def save(self, gpu: ServedGpu) -> None:
        """Write the state file after a change of a GPU."""
        self._saved.save(gpu)

    def save_all(self) -> None:
        """Write the state file with the changes of all GPUs; if that fails, the next check tries again."""
        self._saved.save_changed()

    def _serve(self, gpu: Gpu, before: RememberedGpu | None) -> None:
        fresh = self.settings.policy.over(policy_words.DEFAULT)
        policy, default = before.policies() if before else (fresh, fresh)
        shared_gpu = SharedGpu(gpu, policy, before.next_generation if before else 1, default)
        served = ServedGpu(
            shared_gpu, self.counters, self._jobs, self._agreement, self._pending_max, self.save, self._changed,
            TurnLengths.of(self.settings.shortest_turn_ms, self.settings.longest_turn_ms), self.parking.room,
        )  # fmt: skip
        served.joining.credit.on_wait = self.driver_memory.wake
        self.gpus[gpu.uuid] = served
        knowledge.sweep(self.root.knowledge(gpu.uuid), SLOTS_MAX)
        for each in before.slots if before else []:
            self.slots.restore(served, each)
        for name, role in self.advertising.slots.wanted(gpu).items():
            if name not in shared_gpu.slots:
                self.slots.make(served, name, role, permanent=True)
        shared_gpu.await_return(before.clients if before else [])
        self.parking.begin(gpu.uuid)
        self._jobs.await_return(gpu.uuid, shared_gpu.awaited.values())
        served.activity.share_out()
        _log.info(
            "gpu: %s (%s) has %d slots; %d clients may return",
            gpu.uuid, gpu.model, len(shared_gpu.slots), len(shared_gpu.awaited),
        )  # fmt: skip

    def _stop_awaiting(self) -> None:
        for gpu in self.gpus.values():
            gpu.joining.give_up_awaiting()
            self._changed(gpu)
        self._jobs.stop_awaiting()

    def _changed(self, gpu: ServedGpu) -> None:
        """Check the GPUs often for a while, and divide the windows again: clients have joined or left.

        Several changes cause one division.
        """
        gpu.note_change()
        self.looking.wake()
        self.parking.wake()
        self.driver_memory.wake()
        if not self._share_soon:
            self._share_soon = True
            self._loop.call_soon(self._share_out)

    def _share_out(self) -> None:
        self._share_soon = False
        for gpu in self.gpus.values():
            self.slots.end_unused(gpu)
            gpu.activity.share_out()


def _host_memory(settings: AgentSettings, source: GpuSource) -> HostMemory | None:
    """Return the memory to which what leaves a GPU moves; None: what leaves a simulated GPU moves nowhere."""
    if settings.cgroups is None and source.name == SimulatedGpus.name:
        return None
    return HostMemory(settings.cgroups or HIERARCHY)
