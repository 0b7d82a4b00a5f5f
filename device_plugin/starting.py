"""Answers PreStartContainer. The kubelet calls it before each start of a container, also before a restart.

The plugin first repairs the mounts' sources: a container runtime creates a missing source as an empty folder, and a
reboot removes everything below /run. Then the plugin asks the agent to prepare the slot: the agent drops the clients of
the earlier container and writes the pod's grant into the slot's page. The kubelet makes this call before the runtime
creates the container, waits at most 30 s, and tries again later if the call fails.

The request does not name the pod. The agent reports whether the pod may start without an agent (`failClosed`): in its
answer if it knows the pod by then, and in its snapshots. The plugin stores this under the pod's UID, and reads the UID
of a container's pod from the kubelet's checkpoint. If the container restarts while the agent is away, the stored value
decides. At a first start without an agent, `onNoAgent` decides.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from orion.crds.node_configuration import NodeSettings, OnNoAgent
from orion.device_plugin import checkpoint
from orion.device_plugin.checkpoint import Allocation
from orion.errors import Invalid, Unavailable, Unreadable
from orion.injection import mps
from orion.injection.agent_link import AgentLink
from orion.injection.fail_closed import FailClosedPods
from orion.injection.installing import HookFolder
from orion.injection.mount_sources import make_slot_directory
from orion.injection.slots import Resource, Slot, of_resource

_log = logging.getLogger(__name__)


class Starter:
    """Prepares starts for both resources.

    Args:
        root: the agent's directory.
        link: the connection to the agent.
        files: the hook's files on the node.
        checkpoint_file: the kubelet's checkpoint.
        fail_closed: the pods that must not start without the hook.
        settings: returns the settings now in force.
    """

    def __init__(
        self,
        root: Path,
        link: AgentLink,
        files: HookFolder,
        checkpoint_file: Path,
        fail_closed: FailClosedPods,
        settings: Callable[[], NodeSettings],
    ) -> None:
        self._root, self._link, self._files = root, link, files
        self._checkpoint, self._fail_closed, self._settings = checkpoint_file, fail_closed, settings

    async def start(self, resource: Resource, device_ids: Sequence[str]) -> None:
        """Prepare the start of a container with these slots.

        Raises:
            Invalid: an ID is not one of our slots, Allocate has refused these slots, or there are several GPUs and one
                is in mode mps.
            Exhausted: the mounts' sources cannot be made on the node's disk.
            Unavailable: the container has to wait for an agent.
        """
        slots = of_resource(resource, device_ids)
        allocation = await asyncio.to_thread(self._repair, slots, device_ids)
        prepared = await asyncio.gather(*(self._link.prepare(slot) for slot in slots))
        answers = [answer for answer in prepared if answer is not None]
        pod = allocation.pod_uid if allocation is not None else ""
        if any(answer.fail_closed for answer in answers):
            self._fail_closed.note(pod, True)
        elif len(answers) == len(slots) and all(answer.pod for answer in answers):
            self._fail_closed.note(pod, False)  # only an agent that knows the pod may withdraw failClosed
        if len(answers) == len(slots):
            return
        names = ", ".join(map(str, slots))
        if pod in self._fail_closed:
            why = f"the pod is failClosed, and the node's agent does not answer for {names}"
            raise Unavailable(f"{why}; the kubelet retries")
        if self._settings().on_no_agent is OnNoAgent.HOLD:
            raise Unavailable(
                f"the node's agent does not answer for {names}, and onNoAgent is hold; the kubelet retries"
            )
        _log.warning("start: a container with %s starts while no agent answers; it joins the next agent", names)

    def _repair(self, slots: Sequence[Slot], device_ids: Sequence[str]) -> Allocation | None:
        """Repair the mounts' sources; return the kubelet's record of this container.

        Raises:
            Invalid, Exhausted: as `start`.
        """
        allocation = None
        try:
            allocation = checkpoint.of_devices(checkpoint.read(self._checkpoint), device_ids)
        except Unreadable as error:
            _log.warning("start: %s; only files of this version are repaired", error)
        if allocation is not None and allocation.refused:
            raise Invalid(
                f"{allocation.refused}; the kubelet keeps these slots for the pod: delete the pod to try again"
            )
        self._files.install()
        if allocation is not None:
            self._files.repair(allocation.sources)
        for slot in slots:
            make_slot_directory(self._root, slot)
        gpus = [slot.gpu for slot in slots]
        mps.check(self._root, gpus)
        mps.make(self._root, gpus)
        return allocation
