"""The simulated GPUs of a node: what a container needs to use them, and how one of them is made sick.

All containers of a node and its agent share one simulated machine, a folder on the host (docs/simulated-gpu.md).
`container_needs` is what a device plugin hands over with a slot, as NVIDIA's container toolkit would for a real GPU:

* the machine's folder, read-write;
* the driver's library, where the loader looks anyway. Refused: a folder of its own and `LD_LIBRARY_PATH`, which would
  replace the image's variable and be replaced by the pod's;
* which GPUs the container sees, and that it never makes a machine of its own where it finds none.

`python -m orion.hook.simulated` shows the GPUs, raises Xid events and loses GPUs, for tests and demonstrations.
"""

import argparse
import ctypes
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CONTAINER_STATE = "/run/orion-sim"
""" The machine's folder in a container. """

CONTAINER_LIBRARIES = ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1")
""" The driver in a container: where the loaders of Debian's and of Red Hat's family look without being told. """

_UUID_BYTES = 41  # "GPU-", 36 characters, NUL


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that a container sees."""

    host_path: Path
    container_path: str
    read_only: bool


@dataclass(frozen=True)
class ContainerNeeds:
    """What makes simulated GPUs usable in a container."""

    mounts: tuple[Mount, ...]
    environment: dict[str, str]


def state_folder() -> Path:
    """Return the machine's folder, as the simulated driver finds it: ``$ORION_SIM_STATE``, or this user's own."""
    return Path(os.environ.get("ORION_SIM_STATE") or f"/dev/shm/orion-sim-{os.getuid()}")


def container_needs(library: Path, state: Path, gpus: Sequence[str]) -> ContainerNeeds:
    """Return what a container with these GPUs needs.

    Args:
        library: the simulated ``libcuda.so.1`` on the host. Containers that restart mount it again, so it must stay
            where it is, and as it is, as long as one of them may.
        state: the machine's folder on the host.
        gpus: UUIDs, "GPU-...". Other GPUs are not seen.
    """
    return ContainerNeeds(
        (
            Mount(state, CONTAINER_STATE, read_only=False),
            *(Mount(library, place, read_only=True) for place in CONTAINER_LIBRARIES),
        ),
        {
            "ORION_SIM_STATE": CONTAINER_STATE,
            "ORION_SIM_MAKE": "0",
            "ORION_SIM_VISIBLE_GPUS": ",".join(dict.fromkeys(gpus)),
        },
    )


class Machine:
    """The simulated machine whose folder is ``$ORION_SIM_STATE`` when a process first asks it anything.

    Args:
        library: the simulated ``libcuda.so.1``.

    Raises:
        OSError: the library cannot be loaded.
        AttributeError: it is another driver's library.
    """

    def __init__(self, library: Path) -> None:
        # As hook/sim/orion_sim.h declares them.
        driver = ctypes.CDLL(str(library))
        number, text, word = ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32
        self._count = driver.orion_sim_gpu_count
        self._count.restype, self._count.argtypes = number, []
        self._uuid = driver.orion_sim_gpu_uuid
        self._uuid.restype, self._uuid.argtypes = number, [number, text]
        self._health = driver.orion_sim_gpu_health
        self._health.restype = number
        self._health.argtypes = [number, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(word)]
        self._raise_xid = driver.orion_sim_gpu_raise_xid
        self._raise_xid.restype, self._raise_xid.argtypes = number, [number, word]
        self._set_lost = driver.orion_sim_gpu_set_lost
        self._set_lost.restype, self._set_lost.argtypes = number, [number, number]

    def uuids(self) -> list[str]:
        """Return the UUIDs of all its GPUs, in the driver's order."""
        text = ctypes.create_string_buffer(_UUID_BYTES)
        found = []
        for gpu in range(self._count()):
            self._uuid(gpu, text)
            found.append(text.value.decode("ascii"))
        return found

    def health(self, gpu: int) -> tuple[bool, int, int]:
        """Return whether the GPU is lost, how many Xid events it ever had, and the last one's number.

        Raises:
            IndexError: there is no such GPU.
        """
        events, xid = ctypes.c_uint64(), ctypes.c_uint32()
        lost = self._checked(self._health(gpu, ctypes.byref(events), ctypes.byref(xid)), gpu)
        return bool(lost), events.value, xid.value

    def xid(self, gpu: int, number: int) -> None:
        """Let the GPU report an Xid event, of which programs notice nothing.

        Raises:
            IndexError: there is no such GPU.
        """
        self._checked(self._raise_xid(gpu, number), gpu)

    def lose(self, gpu: int) -> None:
        """Let the GPU fall off the bus: programs on it get errors from now on.

        Raises:
            IndexError: there is no such GPU.
        """
        self._checked(self._set_lost(gpu, 1), gpu)

    def restore(self, gpu: int) -> None:
        """Bring a lost GPU back, as a reset would: for new contexts.

        Raises:
            IndexError: there is no such GPU.
        """
        self._checked(self._set_lost(gpu, 0), gpu)

    def _checked(self, answer: int, gpu: int) -> int:
        if answer < 0:
            raise IndexError(f"the machine in {state_folder()} has no GPU {gpu}")
        return answer


def _show(machine: Machine) -> None:
    for gpu, uuid in enumerate(machine.uuids()):
        lost, events, xid = machine.health(gpu)
        told = f"{events} Xid events, the last {xid}" if events else "no Xid events"
        print(f"{gpu}  {uuid}  {'lost' if lost else 'there'}, {told}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the GPUs or change how one of them is; the answer is an exit status."""
    parser = argparse.ArgumentParser(prog="python -m orion.hook.simulated", description=__doc__.partition("\n")[0])
    parser.add_argument("--library", type=Path, help="the simulated libcuda.so.1; default: this package's")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="all GPUs of the machine, and how they are")
    for name, what in (
        ("xid", "report an Xid event"),
        ("lose", "fall off the bus: programs get errors"),
        ("restore", "come back"),
    ):
        command = commands.add_parser(name, help=f"let a GPU {what}")
        command.add_argument("gpu", help="its number or UUID")
        if name == "xid":
            command.add_argument("number", type=int, help="such as 79; NVIDIA's list says what each means")
    options = parser.parse_args(arguments)

    from orion import hook

    machine = Machine(options.library or hook.simulated_driver())
    if options.command == "show":
        _show(machine)
        return 0
    uuids = machine.uuids()
    wanted = uuids.index(options.gpu) if options.gpu in uuids else options.gpu
    if str(wanted) not in map(str, range(len(uuids))):
        print(f"{parser.prog}: the machine in {state_folder()} has no GPU {options.gpu}", file=sys.stderr)
        return 2
    if options.command == "xid":
        machine.xid(int(wanted), options.number)
    elif options.command == "lose":
        machine.lose(int(wanted))
    else:
        machine.restore(int(wanted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
