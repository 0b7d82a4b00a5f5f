"""The simulated GPUs of a node: what a container needs for them, and commands that inject faults.

All containers of a node and its agent share one simulated machine, a folder on the host (docs/simulated-gpu.md).
`container_needs` is what a device plugin injects with a slot, as NVIDIA's container toolkit does for a real GPU:

* the machine's folder, read-write;
* the driver's library, in a folder that the loader searches by default. Rejected: a separate folder and
`LD_LIBRARY_PATH`; it would replace the image's variable, and the pod's variable would replace it;
* environment variables: the machine's folder, the GPUs that the container sees, and a ban on making a new machine.

`python -m orion.hook.simulated` shows the GPUs, raises Xid events and takes GPUs off the bus, for tests and
demonstrations.
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
""" The driver in a container: a folder that the loaders of Debian's and Red Hat's families search by default. """

_UUID_BYTES = 41  # "GPU-", 36 characters, NUL


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that a container sees."""

    host_path: Path
    container_path: str
    read_only: bool


@dataclass(frozen=True)
class ContainerNeeds:
    """What a container needs so that it can use simulated GPUs."""

    mounts: tuple[Mount, ...]
    environment: dict[str, str]


def state_folder() -> Path:
    """Return the machine's folder by the rule of the simulated driver: ``$ORION_SIM_STATE``, or this user's default."""
    return Path(os.environ.get("ORION_SIM_STATE") or f"/dev/shm/orion-sim-{os.getuid()}")


def container_needs(library: Path, state: Path, gpus: Sequence[str]) -> ContainerNeeds:
    """Return what a container with these GPUs needs.

    Args:
        library: the simulated ``libcuda.so.1`` on the host. A container that restarts mounts it again, so the file
            must stay unchanged at this path while such a container exists.
        state: the machine's folder on the host.
        gpus: UUIDs, "GPU-...". The container sees no other GPUs.
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
    """The simulated machine in the folder that ``$ORION_SIM_STATE`` named at the first call of this process.

    Args:
        library: the simulated ``libcuda.so.1``.

    Raises:
        OSError: the library cannot be loaded.
        AttributeError: the library is not the simulated driver.
    """

    def __init__(self, library: Path) -> None:
        # The types are those of hook/sim/orion_sim.h.
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
        self._fail_checkpoint, self._fail_restore = driver.orion_sim_fail_checkpoint, driver.orion_sim_fail_restore
        for fault in (self._fail_checkpoint, self._fail_restore):
            fault.restype, fault.argtypes = number, [word]

    def uuids(self) -> list[str]:
        """Return the UUIDs of all GPUs, in the driver's order."""
        text = ctypes.create_string_buffer(_UUID_BYTES)
        found = []
        for gpu in range(self._count()):
            self._uuid(gpu, text)
            found.append(text.value.decode("ascii"))
        return found

    def health(self, gpu: int) -> tuple[bool, int, int]:
        """Return whether the GPU is lost, how many Xid events it has had, and the number of the last event.

        Raises:
            IndexError: there is no such GPU.
        """
        events, xid = ctypes.c_uint64(), ctypes.c_uint32()
        lost = self._checked(self._health(gpu, ctypes.byref(events), ctypes.byref(xid)), gpu)
        return bool(lost), events.value, xid.value

    def xid(self, gpu: int, number: int) -> None:
        """Make the GPU report an Xid event. Programs do not notice the event.

        Raises:
            IndexError: there is no such GPU.
        """
        self._checked(self._raise_xid(gpu, number), gpu)

    def lose(self, gpu: int) -> None:
        """Take the GPU off the bus: from now on, programs on it get errors.

        Raises:
            IndexError: there is no such GPU.
        """
        self._checked(self._set_lost(gpu, 1), gpu)

    def restore(self, gpu: int) -> None:
        """Bring a lost GPU back, as a reset does. Only new contexts can use it.

        Raises:
            IndexError: there is no such GPU.
        """
        self._checked(self._set_lost(gpu, 0), gpu)

    def fail_checkpoint(self, result: int) -> None:
        """Make the next checkpoint of any process return this CUresult, once; the process stays locked. 0: none."""
        self._fail_checkpoint(result)

    def fail_restore(self, result: int) -> None:
        """Make the next restore of any process return this CUresult; that process is lost. 0: none."""
        self._fail_restore(result)

    def _checked(self, answer: int, gpu: int) -> int:
        if answer < 0:
            raise IndexError(f"the machine in {state_folder()} has no GPU {gpu}")
        return answer


def _show(machine: Machine) -> None:
    for gpu, uuid in enumerate(machine.uuids()):
        lost, events, xid = machine.health(gpu)
        events_text = f"{events} Xid events, the last {xid}" if events else "no Xid events"
        print(f"{gpu}  {uuid}  {'lost' if lost else 'present'}, {events_text}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the GPUs, or change the state of one of them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m orion.hook.simulated", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--library", type=Path, help="path of the simulated libcuda.so.1 (default: the one of this package)"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("show", help="list all GPUs of the machine and their state")
    for name, what in (
        ("xid", "make a GPU report an Xid event"),
        ("lose", "take a GPU off the bus: its programs get errors"),
        ("restore", "bring a lost GPU back"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("gpu", help="number or UUID of the GPU")
        if name == "xid":
            command.add_argument(
                "number", type=int, help="Xid number, such as 79; NVIDIA's list of Xid errors explains the numbers"
            )
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
