"""The agent's snapshot: which GPUs and slots pods may get, and the facts by which a slot is chosen.

The snapshot is separate from the gRPC stubs, so that the choice of slots and its tests need no agent. A file keeps the
last snapshot across restarts of the agent and of the program that gives slots: running pods keep their capacity while
either is away.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from google.protobuf import json_format

from orion.atomic_files import replace_file
from orion.crds.allocation import HANDING_OVER
from orion.errors import Invalid, Unreadable
from orion.injection.slots import Resource, Slot, parse
from orion.node_agent.api import agent_pb2


@dataclass(frozen=True)
class AdvertisedGPU:
    """One GPU; memory in bytes."""

    uuid: str
    index: int = 0
    slots: tuple[Slot, ...] = ()
    held: frozenset[Slot] = frozenset()
    """ Slots that a container holds, as far as the agent knows. """
    healthy: bool = True
    cordoned: bool = False
    """ The GPU takes no further pods: slots that no container holds are reported as unhealthy. """
    closed: frozenset[Slot] = frozenset()
    """ Slots that no further pod may get, although a container may hold them. """
    fail_closed: frozenset[str] = frozenset()
    """ The uids of the pods with a slot that must not start without the hook, as far as the agent knows. """
    fail_open: frozenset[str] = frozenset()
    """ The uids of those that may. """
    message: str = ""
    """ Why the GPU is unhealthy or cordoned, as a sentence; empty if it is neither. """
    reason: str = ""
    """ The same in one CamelCase word. """
    simulated: bool = False
    model: str = ""
    mode: str = "timeslice"
    """ How processes of different slots share the GPU: timeslice or mps. """
    compute_capability: str = ""
    driver_version: str = ""
    pci_bus_id: str = ""
    pcie_root: str = ""
    """ As the kernel writes them; this and the three before are empty if not known. """
    minor: int = 0
    """ Number in /dev/nvidia<minor>. """
    memory_bytes: int = 0
    memory_reserved_bytes: int = 0
    hp_busy_ratio: float = 0.0
    numa_node: int | None = None
    linked: frozenset[str] = frozenset()
    """ UUIDs of the GPUs that NVLink connects to this one. """

    def usable(self, slot: Slot) -> bool:
        """Return whether a slot may be allocated. A held slot stays usable during a cordon, for restarts."""
        return self.healthy and slot not in self.closed and (not self.cordoned or slot in self.held)

    def usable_for_allocated(self, slot: Slot) -> bool:
        """Return whether a claim that the scheduler has allocated may get a slot.

        A handover waits for that claim's pod, so the claim is no new one. It would wait for ever otherwise.
        """
        handing_over = self.healthy and self.reason == HANDING_OVER and slot not in self.closed
        return self.usable(slot) or handing_over


@dataclass(frozen=True)
class Snapshot:
    """The GPUs that may be advertised, by UUID, and the reasons why the others may not."""

    gpus: Mapping[str, AdvertisedGPU] = field(default_factory=dict)
    not_advertised: Mapping[str, str] = field(default_factory=dict)
    """ For each other GPU, by UUID, a sentence that says why it may not be advertised. """
    giver: str = ""
    """ The program that gives slots, where each node chooses; empty: not known, or there is no choice. """
    handover: str = ""
    """ What a change of the giver waits for, as a sentence; empty: there is none to come. """
    other_users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """ The names of the pods that use a claim, by its uid, where they are others than the driver has named. """

    def slots(self, resource: Resource) -> Iterator[tuple[AdvertisedGPU, Slot]]:
        """Yield the slots of a resource, always in the same order."""
        for gpu in sorted(self.gpus.values(), key=lambda gpu: (gpu.index, gpu.uuid)):
            for slot in gpu.slots:
                if slot.role == resource.role:
                    yield gpu, slot

    def knows(self, slot: Slot) -> bool:
        """Return whether this slot exists."""
        gpu = self.gpus.get(slot.gpu)
        return gpu is not None and slot in gpu.slots


def from_message(message: agent_pb2.Devices) -> Snapshot:
    """Return the snapshot of a message; skip slots whose names are no valid device IDs."""
    gpus = {device.uuid: _gpu(device) for device in message.devices}
    others = {each.uuid: f"{each.reason}: {each.message}" for each in message.not_advertised}
    users = {each.claim_uid: tuple(each.pods) for each in message.other_users}
    return Snapshot(gpus, others, message.giver, message.handover, users)


def _gpu(device: agent_pb2.Device) -> AdvertisedGPU:
    return AdvertisedGPU(
        uuid=device.uuid,
        index=device.index,
        slots=tuple(sorted(_slots(device.uuid, device.slots))),
        held=frozenset(_slots(device.uuid, device.held)),
        healthy=device.healthy,
        cordoned=device.cordoned,
        closed=frozenset(_slots(device.uuid, device.closed)),
        fail_closed=frozenset(device.fail_closed),
        fail_open=frozenset(device.fail_open),
        message=device.message or device.reason,
        reason=device.reason,
        simulated=device.simulated,
        model=device.model,
        mode=device.mode or "timeslice",
        compute_capability=device.compute_capability,
        driver_version=device.driver_version,
        pci_bus_id=device.pci_bus_id,
        pcie_root=device.pcie_root,
        minor=device.minor,
        memory_bytes=device.memory_bytes,
        memory_reserved_bytes=device.memory_reserved_bytes,
        hp_busy_ratio=device.hp_busy_ratio,
        numa_node=device.numa_node if device.HasField("numa_node") else None,
        linked=frozenset(device.linked),
    )


def _slots(gpu: str, names: Iterable[str]) -> Iterator[Slot]:
    for name in names:
        with contextlib.suppress(Invalid):
            yield parse(f"{gpu}::{name}")


class SnapshotFile:
    """Keeps the last snapshot in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> agent_pb2.Devices | None:
        """Return the saved message, or None if there is none.

        Raises:
            Unreadable: the file exists but does not contain a snapshot.
        """
        try:
            return json_format.Parse(self.path.read_text(), agent_pb2.Devices(), ignore_unknown_fields=True)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, json_format.ParseError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise Unreadable(f"{self.path} does not hold the agent's last snapshot: {reason}") from None

    def save(self, message: agent_pb2.Devices) -> None:
        """Save a message.

        Raises:
            OSError: the file cannot be written.
        """
        replace_file(self.path, json_format.MessageToJson(message).encode())
