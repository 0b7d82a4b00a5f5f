"""Makes the description of what a container gets for its slots: the slots' folders, the hook, and the GPUs themselves.

The node's configuration sets one way of giving GPUs for all containers. Most ways have the names that NVIDIA's device
plugin uses. A container with a simulated GPU always gets the file of the simulated driver, because no container runtime
would mount that file.

The description depends on nothing that changes during a container's life, and making it asks neither the agent nor an
API server, and writes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orion import hook
from orion.crds.node_configuration import DeviceListStrategy, NodeSettings, Preload
from orion.hook import simulated
from orion.injection import device_nodes, mps
from orion.injection.description import Description, Mount
from orion.injection.installing import PRELOAD, SIMULATED_DRIVER, HookFolder
from orion.injection.mount_sources import slot_directory
from orion.injection.slots import Slot
from orion.injection.snapshot import AdvertisedGPU, Snapshot

CDI_KIND = "nvidia.com/gpu"

_CONTAINER_PRELOAD = "/etc/ld.so.preload"


@dataclass(frozen=True)
class Places:
    """Where on the node the things are that containers get.

    Args:
        root: the agent's directory; its path is the same in this program's container as on the node.
        host: where the node's root directory is mounted in this program's container.
        files: the hook's files on the node.
    """

    root: Path
    host: Path
    files: HookFolder


def describe(places: Places, slots: Sequence[Slot], snapshot: Snapshot, settings: NodeSettings) -> Description:
    """Return what one container needs for its slots, which are of different GPUs. Equal slots give equal descriptions.

    Raises:
        Invalid: there are several GPUs and one is in mode mps.
        Unavailable: the driver's files are missing.
    """
    files = places.files.current
    given = Description([Mount(files, str(Path(hook.CONTAINER_LIBRARY).parent))])
    for slot in slots:
        given.mounts.append(Mount(slot_directory(places.root, slot), f"{hook.CONTAINER_ROOT}/slots/{slot.gpu}"))
        given.environment.update(hook.role_environment(slot.role))
    if settings.preload is Preload.FILE:
        given.mounts.append(Mount(files / PRELOAD, _CONTAINER_PRELOAD))
    mps.add(given, places.root, [slot.gpu for slot in slots])
    gpus = [snapshot.gpus[slot.gpu] for slot in slots]
    real = [gpu for gpu in gpus if not gpu.simulated]
    if real:
        _WAYS[settings.device_list_strategy](given, real, settings, places.host)
    if len(real) < len(gpus):
        _add_simulated(given, [gpu.uuid for gpu in gpus if gpu.simulated], files)
    return given


def _by_environment(given: Description, gpus: Sequence[AdvertisedGPU], _: NodeSettings, __: Path) -> None:
    """Name the GPUs in NVIDIA_VISIBLE_DEVICES, which NVIDIA's container runtime reads.

    NVIDIA_DRIVER_CAPABILITIES is not set. The runtime's default suffices for CUDA, and a value of ours would remove
    video or graphics from an image that asks for them.
    """
    given.environment["NVIDIA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)


def _by_cdi_names(given: Description, gpus: Sequence[AdvertisedGPU], _: NodeSettings, __: Path) -> None:
    """Give the qualified CDI names, which the container runtime looks up in specifications on the node.

    The NVIDIA container toolkit writes these specifications (`nvidia-ctk cdi generate`, its refresh service, or the GPU
    operator), because they depend on the driver, which Orion does not install. They must name devices by UUID; the
    toolkit does so by default, in addition to the index.
    """
    given.cdi_names += [f"{CDI_KIND}={gpu.uuid}" for gpu in gpus]


_WAYS: Mapping[DeviceListStrategy, Callable[[Description, Sequence[AdvertisedGPU], NodeSettings, Path], None]] = {
    DeviceListStrategy.ENVVAR: _by_environment,
    DeviceListStrategy.CDI_ANNOTATIONS: _by_cdi_names,
    DeviceListStrategy.CDI_CRI: _by_cdi_names,
    DeviceListStrategy.DEVICE_NODES: device_nodes.add,
}


def _add_simulated(given: Description, gpus: Sequence[str], files: Path) -> None:
    """Add what makes these simulated GPUs visible in the container: the driver's file and the machine's state."""
    needs = simulated.container_needs(library=files / SIMULATED_DRIVER, state=simulated.state_folder(), gpus=gpus)
    given.mounts += [Mount(Path(each.host_path), each.container_path, each.read_only) for each in needs.mounts]
    given.environment.update(needs.environment)
