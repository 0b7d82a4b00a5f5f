"""How a container gets the GPU itself: one way for the whole node, configured; most names are those of NVIDIA's plugin.

A simulated GPU comes with its driver's file whatever the strategy: there is no runtime that would bring it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orion.crds.node_configuration import DeviceListStrategy, NodeSettings
from orion.device_plugin.handing_over import cdi, device_nodes, environment, simulated
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.slots import Resource
from orion.device_plugin.word import OfferedGPU

Answer = api_pb2.ContainerAllocateResponse

_WAYS: Mapping[DeviceListStrategy, Callable[[Answer, Resource, Sequence[OfferedGPU], NodeSettings, Path], None]] = {
    DeviceListStrategy.ENVVAR: environment.add,
    DeviceListStrategy.CDI_ANNOTATIONS: cdi.add_annotation,
    DeviceListStrategy.CDI_CRI: cdi.add_names,
    DeviceListStrategy.DEVICE_NODES: device_nodes.add,
}


def hand_over(
    answer: Answer, resource: Resource, gpus: Sequence[OfferedGPU], settings: NodeSettings, host: Path, files: Path
) -> None:
    """Add to an answer what gives the container these GPUs.

    Args:
        answer: the container's.
        resource: the one asked for.
        gpus: each once.
        settings: of the node.
        host: where the node's root directory is seen from here.
        files: the folder of the hook's files on the node, which holds the simulated driver too.

    Raises:
        HostRefused: the driver's files are not where they should be.
    """
    real = [gpu for gpu in gpus if not gpu.simulated]
    if real:
        _WAYS[settings.device_list_strategy](answer, resource, real, settings, host)
    if len(real) < len(gpus):
        simulated.add(answer, [gpu.uuid for gpu in gpus if gpu.simulated], files)
