"""By NVIDIA_VISIBLE_DEVICES, which NVIDIA's container runtime reads.

NVIDIA_DRIVER_CAPABILITIES is left to the image: the runtime's own default is what CUDA needs, and a value from here
would take video or graphics from an image that asks for them.
"""

from collections.abc import Sequence
from pathlib import Path

from orion.crds.node_configuration import NodeSettings
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.slots import Resource
from orion.device_plugin.word import OfferedGPU


def add(
    answer: api_pb2.ContainerAllocateResponse, _: Resource, gpus: Sequence[OfferedGPU], __: NodeSettings, ___: Path
) -> None:
    """Name the GPUs."""
    answer.envs["NVIDIA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
