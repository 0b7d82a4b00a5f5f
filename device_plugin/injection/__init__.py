"""Device injection: how a container gets the GPU itself. The node's configuration sets one strategy for all containers.

Most strategies have the names that NVIDIA's device plugin uses. A container with a simulated GPU always gets the file
of the simulated driver, because no container runtime would mount that file.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orion.crds.node_configuration import DeviceListStrategy, NodeSettings
from orion.device_plugin.injection import device_nodes
from orion.device_plugin.installing import SIMULATED_DRIVER
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.slots import Resource
from orion.device_plugin.snapshot import AdvertisedGPU
from orion.hook import simulated

Answer = api_pb2.ContainerAllocateResponse

CDI_KIND = "nvidia.com/gpu"


def _by_environment(answer: Answer, _: Resource, gpus: Sequence[AdvertisedGPU], __: NodeSettings, ___: Path) -> None:
    """Name the GPUs in NVIDIA_VISIBLE_DEVICES, which NVIDIA's container runtime reads.

    The plugin does not set NVIDIA_DRIVER_CAPABILITIES. The runtime's default suffices for CUDA, and a value of the
    plugin would remove video or graphics from an image that asks for them.
    """
    answer.envs["NVIDIA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)


def _cdi_names(gpus: Sequence[AdvertisedGPU]) -> list[str]:
    """Return the qualified CDI names, which the container runtime looks up in specifications on the node.

    The NVIDIA container toolkit writes these specifications (`nvidia-ctk cdi generate`, its refresh service, or the GPU
    operator), because they depend on the driver, which Orion does not install. They must name devices by UUID; the
    toolkit does so by default, in addition to the index.
    """
    return [f"{CDI_KIND}={gpu.uuid}" for gpu in gpus]


def _by_cdi_annotation(
    answer: Answer, resource: Resource, gpus: Sequence[AdvertisedGPU], _: NodeSettings, __: Path
) -> None:
    """Name the GPUs in an annotation of the container. Each resource has its own key, as the kubelet merges by key."""
    answer.annotations[f"cdi.k8s.io/orion-device-plugin_{resource.role}"] = ",".join(_cdi_names(gpus))


def _by_cdi_names(answer: Answer, _: Resource, gpus: Sequence[AdvertisedGPU], __: NodeSettings, ___: Path) -> None:
    """Name the GPUs in the field that the kubelet passes to the runtime through the CRI."""
    answer.cdi_devices.extend(api_pb2.CDIDevice(name=name) for name in _cdi_names(gpus))


_WAYS: Mapping[DeviceListStrategy, Callable[[Answer, Resource, Sequence[AdvertisedGPU], NodeSettings, Path], None]] = {
    DeviceListStrategy.ENVVAR: _by_environment,
    DeviceListStrategy.CDI_ANNOTATIONS: _by_cdi_annotation,
    DeviceListStrategy.CDI_CRI: _by_cdi_names,
    DeviceListStrategy.DEVICE_NODES: device_nodes.add,
}


def inject(
    answer: Answer, resource: Resource, gpus: Sequence[AdvertisedGPU], settings: NodeSettings, host: Path, files: Path
) -> None:
    """Add to an answer the variables, names, mounts and device nodes by which the container gets these GPUs.

    Args:
        answer: the answer to Allocate for the container.
        resource: the resource that the container requests.
        gpus: the container's GPUs, without duplicates.
        settings: the settings of the node.
        host: where the node's root directory is mounted in the plugin's container.
        files: the folder of the hook's files on the node, which also holds the simulated driver.

    Raises:
        Unavailable: the driver's files are missing.
    """
    real = [gpu for gpu in gpus if not gpu.simulated]
    if real:
        _WAYS[settings.device_list_strategy](answer, resource, real, settings, host)
    if len(real) < len(gpus):
        _add_simulated(answer, [gpu.uuid for gpu in gpus if gpu.simulated], files)


def _add_simulated(answer: Answer, gpus: Sequence[str], files: Path) -> None:
    """Add what makes these simulated GPUs visible in the container: the driver's file and the machine's state."""
    needs = simulated.container_needs(library=files / SIMULATED_DRIVER, state=simulated.state_folder(), gpus=gpus)
    for mount in needs.mounts:
        answer.mounts.add(
            host_path=str(mount.host_path), container_path=mount.container_path, read_only=mount.read_only
        )
    answer.envs.update(needs.environment)
