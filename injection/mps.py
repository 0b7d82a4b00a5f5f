"""Connects a container to its GPU's MPS control daemon, through a folder that holds a socket only in mode mps.

Every container with one GPU gets that GPU's folder, in every mode. A process that starts while a control daemon listens
in the folder becomes its client; any other process runs without MPS, as the driver does by default. So the GPU's mode
at the start of the process decides. What a container gets is stored for its later starts, so it must
not depend on the mode. The variable CUDA_MPS_PIPE_DIRECTORY names the folder in the container. The variable
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
from orion.errors import Invalid
from orion.injection.description import Description, Mount
from orion.injection.mount_sources import make_folder

VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
IN_CONTAINER = f"{hook.CONTAINER_ROOT}/mps"


def clients(root: Path, gpu: str) -> Path:
    """Return a GPU's client folder on the node; `orion.node_agent.mps.folder` defines the same path."""
    return root / "mps" / gpu / "clients"


def add(given: Description, root: Path, gpus: Sequence[str]) -> None:
    """Add the folder of the control daemon's socket, and the variable that names the folder.

    Args:
        given: the description of what the container gets.
        root: the agent's directory.
        gpus: the UUIDs of the container's GPUs, without duplicates.

    Raises:
        Invalid: there are several GPUs, and one is in mode mps or about to be.
    """
    check(root, gpus)
    if len(gpus) == 1:
        folder = f"{IN_CONTAINER}/{gpus[0]}"
        given.mounts.append(Mount(clients(root, gpus[0]), folder))
        given.environment[VARIABLE] = folder
    else:
        given.environment[VARIABLE] = IN_CONTAINER  # an empty folder, so that the process finds no control daemon


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
