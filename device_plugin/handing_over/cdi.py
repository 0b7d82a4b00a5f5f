"""By the Container Device Interface: names of devices, which the runtime looks up in specifications on the node.

The specifications are the NVIDIA container toolkit's (`nvidia-ctk cdi generate`, its refresh service, or the GPU
operator): they follow the driver, which Orion does not install. They must name devices by UUID, as the toolkit does
beside the index unless told otherwise.
"""

from collections.abc import Sequence
from pathlib import Path

from orion.crds.node_configuration import NodeSettings
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.slots import Resource
from orion.device_plugin.word import OfferedGPU

KIND = "nvidia.com/gpu"


def names(gpus: Sequence[OfferedGPU]) -> list[str]:
    """Return the devices' qualified names."""
    return [f"{KIND}={gpu.uuid}" for gpu in gpus]


def add_annotation(
    answer: api_pb2.ContainerAllocateResponse, resource: Resource, gpus: Sequence[OfferedGPU], _: NodeSettings, __: Path
) -> None:
    """Name the GPUs in an annotation of the container: one key a resource, since the kubelet merges answers by key."""
    answer.annotations[f"cdi.k8s.io/orion-device-plugin_{resource.role}"] = ",".join(names(gpus))


def add_names(
    answer: api_pb2.ContainerAllocateResponse, _: Resource, gpus: Sequence[OfferedGPU], __: NodeSettings, ___: Path
) -> None:
    """Name the GPUs in the field that the kubelet passes on by the CRI."""
    answer.cdi_devices.extend(api_pb2.CDIDevice(name=name) for name in names(gpus))
