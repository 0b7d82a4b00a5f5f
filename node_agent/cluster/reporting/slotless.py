"""Names containers that run under a claim without its slot: they have neither GPU nor hook, and nobody else says so.

A container runtime that does not know CDI ignores what the kubelet passes to it, and starts the container all the same.
The DRA driver knows this of old versions, and not of an option that is off, as in containerd 1.7. So the agent looks
into the mounts of a process of each container that uses a claim: a slot is a mount, and the kubelet's own mount of
/dev/termination-log names pod and container. A container that was seen with its slot is not looked at again.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orion.node_agent.cluster.pod_resources import SlotKey
from orion.node_agent.cluster.reporting.events import Events, pod
from orion.node_agent.cluster.state import ClusterState
from orion.node_agent.gpus.asking import AskingThread
from orion.node_agent.pacing.tolerating import periodically
from orion.node_agent.processes.cgroup_folders import PROC
from orion.node_agent.processes.pod_cgroups import own_cgroups, pod_uid
from orion.node_agent.slots.holders import Holder

_LOOK_SECONDS = 5.0
_GRACE_SECONDS = 5.0
""" A process that is being started has some of its mounts before others. """
_OF_CONTAINER = re.compile(r"/pods/([0-9a-f-]{36})/containers/([^/ ]+)/")
_OF_SLOT = re.compile(r"/gpus/(GPU-[0-9a-fA-F-]{1,43})/((?:hp|be)-[0-9]{1,3})(?: |//)")

Container = tuple[str, str]
""" A pod's uid and a container's name. """


class SlotlessContainers:
    """The containers of one node that run under a claim without its slot.

    Args:
        state: knows which containers use which claims.
        events: posts an Event about each container.
        proc: where the kernel shows processes.
    """

    def __init__(self, state: ClusterState, events: Events, proc: Path = PROC) -> None:
        self._state, self._events, self._proc = state, events, proc
        self._with: set[Holder] = set()
        self._since: dict[Holder, float] = {}
        """ When a container was first seen without its slot; monotonic seconds. """
        self._thread = AskingThread("mounts")

    async def run(self) -> None:
        """Look at intervals until cancelled."""
        await periodically("slotless: a check", _LOOK_SECONDS, self.look)

    async def look(self, now: float | None = None) -> None:
        """Look once. `now`: in seconds, monotonic, for tests."""
        using = self._state.containers_of_claims()
        self._with &= using.keys()
        unseen = {holder: slots for holder, slots in using.items() if holder not in self._with}
        self._since = {holder: since for holder, since in self._since.items() if holder in unseen}
        if not unseen:
            return
        uids = {holder.uid for holder in unseen}
        has = await asyncio.wrap_future(self._thread.submit(slots_of_containers, uids, self._proc))
        self._judge(unseen, has, time.monotonic() if now is None else now)

    def _judge(
        self, unseen: Mapping[Holder, frozenset[SlotKey]], has: Mapping[Container, set[SlotKey]], now: float
    ) -> None:
        for holder, slots in unseen.items():
            mounted = has.get((holder.uid, holder.container))
            if mounted is None:  # it does not run
                self._since.pop(holder, None)
            elif mounted & slots:
                self._with.add(holder)
            elif now - self._since.setdefault(holder, now) >= _GRACE_SECONDS:
                note = (
                    f"container {holder.container} runs without the slot of its claim, so it has neither GPU nor hook: "
                    "the container runtime has ignored the claim's CDI device; let it use CDI (containerd 1.7: "
                    "enable_cdi = true; earlier versions have no CDI), and delete the pod"
                )
                self._events.post(pod(holder), "ContainerWithoutSlot", note, key=holder.container)


def slots_of_containers(uids: Iterable[str], proc: Path = PROC) -> dict[Container, set[SlotKey]]:
    """Return the slots that running containers have, by their mounts.

    Args:
        uids: the pods to look at.
        proc: where the kernel shows processes.
    """
    wanted, own, found = set(uids), own_cgroups(proc), dict[Container, set[SlotKey]]()
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            uid = pod_uid((folder / "cgroup").read_text(errors="replace"), own)
            if uid not in wanted:
                continue
            mounts = (folder / "mountinfo").read_text(errors="replace")
        except OSError:  # the process has ended
            continue
        container = _OF_CONTAINER.search(mounts)
        if container is not None and container[1] == uid:  # a container that may mount can show mounts of another pod
            found.setdefault((container[1], container[2]), set()).update(_slots(mounts))
    return found


def _slots(mounts: str) -> Iterator[SlotKey]:
    for each in _OF_SLOT.finditer(mounts):
        yield each[1], each[2]
