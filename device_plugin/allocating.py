"""Answers Allocate: a container with slots gets the slots' directories, the hook and the GPUs.

Allocate asks neither the agent nor an API server, and writes nothing. The kubelet calls it while it admits a pod: a
delay holds up every other pod. The kubelet stores the answer and uses it at every start of the container, so paths of
the node in an answer must stay valid for the pod's life. `starting` makes them before each start, and if the node's
disk is full, the start is tried again.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from orion import hook
from orion.crds.node_configuration import NodeSettings, Preload
from orion.device_plugin.injection import inject, mps
from orion.device_plugin.installing import PRELOAD, HookFolder
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.mount_sources import make_folder
from orion.device_plugin.slots import Resource, Slot, of_resource
from orion.device_plugin.snapshot import AdvertisedGPU, Snapshot
from orion.errors import Invalid, Unavailable

_CONTAINER_PRELOAD = "/etc/ld.so.preload"


class Allocator:
    """Answers Allocate for both resources.

    Args:
        root: the agent's directory; its path is the same in the plugin's container as on the node.
        host: where the node's root directory is mounted in the plugin's container.
        files: the hook's files on the node.
        snapshot: returns the agent's last snapshot.
        settings: returns the settings now in force.
    """

    def __init__(
        self,
        root: Path,
        host: Path,
        files: HookFolder,
        snapshot: Callable[[], Snapshot | None],
        settings: Callable[[], NodeSettings],
    ) -> None:
        self._root, self._host, self._files = root, host, files
        self._snapshot, self._settings = snapshot, settings

    def allocate(self, resource: Resource, device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        """Return what one container needs for its slots. Equal requests get equal answers.

        Raises:
            Invalid: an ID is not a slot of this node, two slots are of one GPU, or there are several GPUs and one is in
                mode mps.
            Unavailable: the plugin has no snapshot yet, or the driver's files are missing.
        """
        snapshot, settings = self._snapshot(), self._settings()
        if snapshot is None:
            raise Unavailable("the node's agent has not yet reported its GPUs")
        slots = _slots(resource, device_ids, snapshot)
        answer = api_pb2.ContainerAllocateResponse()
        mount(answer, self._files.current, str(Path(hook.CONTAINER_LIBRARY).parent))
        for slot in slots:
            mount(answer, slot_directory(self._root, slot), f"{hook.CONTAINER_ROOT}/slots/{slot.gpu}")
        if settings.preload is Preload.FILE:
            mount(answer, self._files.current / PRELOAD, _CONTAINER_PRELOAD)
        mps.add(answer, self._root, [slot.gpu for slot in slots])
        gpus: list[AdvertisedGPU] = [snapshot.gpus[slot.gpu] for slot in slots]
        inject(answer, resource, gpus, settings, self._host, self._files.current)
        return answer


def mount(answer: api_pb2.ContainerAllocateResponse, source: Path, target: str) -> None:
    """Add a read-only mount."""
    answer.mounts.add(host_path=str(source), container_path=target, read_only=True)


def slot_directory(root: Path, slot: Slot) -> Path:
    """Return the directory where the agent serves a slot; `orion.node_agent.state.root` defines the same path."""
    return root / "gpus" / slot.gpu / slot.name


def make_slot_directory(root: Path, slot: Slot) -> None:
    """Make a slot's directory if the agent has not made it yet: every user may enter it, only its owner may write.

    Raises:
        Exhausted: the file system rejects the directory.
    """
    make_folder(root, slot_directory(root, slot), "the slot's directory")


def _slots(resource: Resource, device_ids: Sequence[str], snapshot: Snapshot) -> list[Slot]:
    if not device_ids:
        raise Invalid("the kubelet requests a container without devices")
    slots = of_resource(resource, device_ids)
    for slot in slots:
        if not snapshot.knows(slot):
            why = snapshot.not_advertised.get(slot.gpu, "")
            raise Invalid(f"there is no slot {slot} on this node" + (f" ({why})" if why else ""))
    for first, second in itertools.pairwise(slots):
        if first.gpu == second.gpu:
            raise Invalid(
                f"{first} and {second} are two slots of one GPU, and a container can use one slot of each GPU: fewer "
                "GPUs of the node had free slots than the container asks for"
            )
    return slots
