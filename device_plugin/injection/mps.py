"""Connects a container to its GPU's MPS control daemon, through a folder that holds a socket only in mode mps.

Every container with one GPU gets that GPU's folder, in every mode. A process that starts while a control daemon listens
in the folder becomes its client; any other process runs without MPS, as the driver does by default. So the GPU's mode
at the start of the process decides. The kubelet reuses its stored answer for later starts of the container, so the
answer must not depend on the mode. The variable CUDA_MPS_PIPE_DIRECTORY names the folder in the container. The variable
also prevents the process from connecting to another party's control daemon by accident.

A process can be the client of one control daemon, and each of Orion's control daemons serves one GPU. So a container
with several GPUs gets no folder, and none of its GPUs may be in mode mps.

Rejected: mounting the daemon's own folder. The administrative socket in it lets any root user stop the daemon.
Rejected: mounting the daemon's /dev/shm over the pod's /dev/shm. Data loaders fill the pod's /dev/shm, and MPS keeps
nothing in the daemon's /dev/shm (docs/mps.md).
"""

from collections.abc import Sequence
from pathlib import Path

from orion import hook
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.mount_sources import make_folder
from orion.errors import Invalid

VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
IN_CONTAINER = f"{hook.CONTAINER_ROOT}/mps"


def clients(root: Path, gpu: str) -> Path:
    """Return a GPU's client folder on the node; `orion.node_agent.mps.folder` defines the same path."""
    return root / "mps" / gpu / "clients"


def add(answer: api_pb2.ContainerAllocateResponse, root: Path, gpus: Sequence[str]) -> None:
    """Add the folder of the control daemon's socket, and the variable that names the folder.

    Args:
        answer: the answer to Allocate for the container.
        root: the agent's directory.
        gpus: the UUIDs of the container's GPUs, without duplicates.

    Raises:
        Invalid: there are several GPUs, and one is in mode mps or about to be.
    """
    check(root, gpus)
    if len(gpus) == 1:
        folder = f"{IN_CONTAINER}/{gpus[0]}"
        answer.mounts.add(host_path=str(clients(root, gpus[0])), container_path=folder, read_only=True)
        answer.envs[VARIABLE] = folder
    else:
        answer.envs[VARIABLE] = IN_CONTAINER  # an empty folder, so that the process finds no control daemon


def check(root: Path, gpus: Sequence[str]) -> None:
    """Check that a container can run on all of these GPUs.

    Raises:
        Invalid: there are several GPUs, and one is in mode mps or about to be.
    """
    if len(gpus) < 2:
        return
    shared = [gpu for gpu in gpus if (root / "mps" / gpu / "wanted").exists()]
    if shared:
        raise Invalid(
            f"GPU {shared[0]} is in mode mps, and a container with {len(gpus)} GPUs can use it in mode timeslice only: "
            "a process is the client of one MPS control daemon, and each serves one GPU; set spec.mode of its "
            "GPUDevice back, or let the container ask for one GPU"
        )


def make(root: Path, gpus: Sequence[str]) -> None:
    """Make the folder that the container mounts: every user may enter it, only its owner may write.

    Raises:
        Exhausted: the file system rejects the folder.
    """
    if len(gpus) == 1:
        make_folder(root, clients(root, gpus[0]), "the folder of the GPU's MPS control daemon")
