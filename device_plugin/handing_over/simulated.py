"""Simulated GPUs: the simulated driver's file and the machine's state, as `orion.hook.simulated` says."""

from collections.abc import Sequence
from pathlib import Path

from orion.device_plugin.installing import SIMULATED_DRIVER
from orion.device_plugin.kubelet import api_pb2
from orion.hook import simulated


def add(answer: api_pb2.ContainerAllocateResponse, gpus: Sequence[str], files: Path) -> None:
    """Add what makes these simulated GPUs be seen in the container."""
    needs = simulated.container_needs(library=files / SIMULATED_DRIVER, state=simulated.state_folder(), gpus=gpus)
    for mount in needs.mounts:
        answer.mounts.add(
            host_path=str(mount.host_path), container_path=mount.container_path, read_only=mount.read_only
        )
    answer.envs.update(needs.environment)
