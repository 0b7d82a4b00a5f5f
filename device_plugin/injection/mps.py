"""The way to a GPU's MPS control daemon: a folder that is empty unless the GPU is in mode mps.

Every container with one GPU gets its GPU's folder, whatever the mode: a process that starts while a control daemon
listens there is its client, and any other runs by itself, as the driver does without MPS. So the mode is that of the
GPU when the process starts, and the answer that the kubelet keeps for a container's later starts does not carry an old
one; nor is a control daemon of somebody else's ever met by accident.

A process can be the client of one control daemon, and ours serve one GPU each: a container with several GPUs gets no
folder, and none of them may be in mode mps.

Refused: the daemon's own folder, with the socket for administrators (any root could tell it to quit); and a /dev/shm of
the daemon's in place of the pod's, which data loaders fill: MPS has nothing there (docs/mps.md).
"""

from collections.abc import Sequence
from pathlib import Path

from orion import hook
from orion.device_plugin.errors import BadRequest
from orion.device_plugin.kubelet import api_pb2
from orion.device_plugin.mount_sources import make_folder

VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
IN_CONTAINER = f"{hook.CONTAINER_ROOT}/mps"


def clients(root: Path, gpu: str) -> Path:
    """Return a GPU's folder on the node: as `orion.node_agent.mps.folder` has it."""
    return root / "mps" / gpu / "clients"


def add(answer: api_pb2.ContainerAllocateResponse, root: Path, gpus: Sequence[str]) -> None:
    """Add the way to the control daemon.

    Args:
        answer: the container's.
        root: the agent's.
        gpus: UUIDs, each once.

    Raises:
        BadRequest: there are several, and one is in mode mps or on its way there.
        HostRefused: the disk does not let the folder be made.
    """
    check(root, gpus)
    make(root, gpus)
    if len(gpus) == 1:
        place = f"{IN_CONTAINER}/{gpus[0]}"
        answer.mounts.add(host_path=str(clients(root, gpus[0])), container_path=place, read_only=True)
        answer.envs[VARIABLE] = place
    else:
        answer.envs[VARIABLE] = IN_CONTAINER  # nothing is there, so nothing else is met


def check(root: Path, gpus: Sequence[str]) -> None:
    """See to it that a container with these GPUs can run on all of them.

    Raises:
        BadRequest: it cannot.
    """
    if len(gpus) < 2:
        return
    shared = [gpu for gpu in gpus if (root / "mps" / gpu / "wanted").exists()]
    if shared:
        raise BadRequest(
            f"GPU {shared[0]} is in mode mps, and a container with {len(gpus)} GPUs can use it in mode timeslice only: "
            "a process is the client of one MPS control daemon, and each serves one GPU; set spec.mode of its "
            "GPUDevice back, or let the container ask for one GPU"
        )


def make(root: Path, gpus: Sequence[str]) -> None:
    """Make what is mounted be there, with its modes: any user passes, nobody else writes.

    Raises:
        HostRefused: the disk does not let it.
    """
    if len(gpus) == 1:
        make_folder(root, clients(root, gpus[0]), "the folder of the GPU's MPS control daemon")
