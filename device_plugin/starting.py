"""PreStartContainer: before each start of a container, also the second and later ones, which bring no Allocate.

What it sees to: that the mounts' sources are what they should be (a container runtime makes a missing one as an empty
folder, and a reboot takes everything below /run), and that the agent has made the slot ready: an earlier container's
clients forgotten, the pod's grant in its place. The kubelet calls it before it has the runtime create the container,
waits 30 s at most, and tries again later where it fails.

Which pod it is, nobody says. Whether its pod may start without an agent (`failClosed`) is the agent's to say; of a
container that starts again while the agent is away, what the agent said at its first start is remembered by the pod's
UID, which the kubelet's checkpoint tells. For a first start without an agent `onNoAgent` decides.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from orion.crds.node_configuration import NodeSettings, OnNoAgent
from orion.device_plugin import checkpoint
from orion.device_plugin.agent_link import AgentLink
from orion.device_plugin.allocating import make_slot_directory
from orion.device_plugin.checkpoint import Allocation
from orion.device_plugin.errors import NotNow
from orion.device_plugin.fail_closed import FailClosedPods
from orion.device_plugin.injection import mps
from orion.device_plugin.installing import HookFolder
from orion.device_plugin.slots import Resource, Slot, of_resource
from orion.device_plugin.snapshot import Unreadable

FAIL_CLOSED = "device-plugin-fail-closed.json"

_log = logging.getLogger(__name__)


class Starter:
    """Answers for both resources.

    Args:
        root: the agent's.
        link: to the agent.
        files: of the hook.
        checkpoint_file: the kubelet's.
        settings: as they are now.
    """

    def __init__(
        self,
        root: Path,
        link: AgentLink,
        files: HookFolder,
        checkpoint_file: Path,
        settings: Callable[[], NodeSettings],
    ) -> None:
        self._root, self._link, self._files = root, link, files
        self._checkpoint, self._settings = checkpoint_file, settings
        self._fail_closed = FailClosedPods(root / FAIL_CLOSED)

    async def start(self, resource: Resource, device_ids: Sequence[str]) -> None:
        """Make all be ready for a container with these slots.

        Raises:
            BadRequest: an id that is none of ours, or several GPUs of which one is in mode mps.
            HostRefused: the node's disk does not let the mounts' sources be made.
            NotNow: the container has to wait for an agent.
        """
        slots = of_resource(resource, device_ids)
        allocation = await asyncio.to_thread(self._repair, slots, device_ids)
        prepared = await asyncio.gather(*(self._link.prepare(slot) for slot in slots))
        answers = [answer for answer in prepared if answer is not None]
        pod = allocation.pod_uid if allocation is not None else ""
        if any(answer.fail_closed for answer in answers):
            self._fail_closed.note(pod, True)
        elif len(answers) == len(slots) and all(answer.pod for answer in answers):
            self._fail_closed.note(pod, False)  # an agent that does not know the pod (yet) takes nothing back
        if len(answers) == len(slots):
            return
        names = ", ".join(map(str, slots))
        if pod in self._fail_closed:
            raise NotNow(f"the pod is failClosed, and the node's agent does not answer for {names}; it is tried again")
        if self._settings().on_no_agent is OnNoAgent.HOLD:
            raise NotNow(f"the node's agent does not answer for {names}, and onNoAgent is hold; it is tried again")
        _log.warning("start: a container with %s starts while no agent answers; it joins when one does", names)

    def _repair(self, slots: Sequence[Slot], device_ids: Sequence[str]) -> Allocation | None:
        """Make the mounts' sources be there; return what the kubelet has written down of this container."""
        allocation = None
        try:
            allocation = checkpoint.of_devices(checkpoint.read(self._checkpoint), device_ids)
        except Unreadable as error:
            _log.warning("start: %s; only this version's files are looked after", error)
        self._files.install()
        if allocation is not None:
            self._files.repair(allocation.sources)
        for slot in slots:
            make_slot_directory(self._root, slot)
        gpus = [slot.gpu for slot in slots]
        mps.check(self._root, gpus)
        mps.make(self._root, gpus)
        return allocation
