"""Reads a GPUProfile from a file, checks it, and gives it to the slots of a running agent."""

from pathlib import Path
from typing import TYPE_CHECKING

from orion.cli.profiling.orion_csv import HEADER
from orion.crds.profile import GPUProfile, Kernel
from orion.crds.profile_file import parse_profile
from orion.errors import NotFound, Unreadable

if TYPE_CHECKING:
    from orion.node_agent.api import agent_pb2
    from orion.node_agent.api.client import AgentClient


def read_profile(path: Path) -> GPUProfile:
    """Return the profile in a file.

    Raises:
        Unreadable: the file is unreadable or not a profile.
    """
    try:
        return parse_profile(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from error


def read_rows(path: Path) -> "list[agent_pb2.ProfileRow]":
    """Return the rows of a profile's file that the policy can use.

    Raises:
        Unreadable: the file is unreadable, or has no such rows.
    """
    from orion.node_agent.api import agent_pb2, profiles

    if _is_orions(path):
        raise Unreadable(f"{path}: {_WHY_NOT}")
    profile = read_profile(path)
    for kernel in profile.spec.kernels:
        _check_identity(path, kernel)
    rows = profiles.rows_of(profile)
    if not rows:
        raise Unreadable(f"{path}: {_WHY_NOT}" if profile.spec.kernels else f"{path}: there is no kernel in it")
    return [
        agent_pb2.ProfileRow(
            identity=row.identity,
            duration_ns=row.duration_ns,
            sms=row.sms,
            kernel_class=agent_pb2.KernelClass.Name(row.kernel_class),
        )
        for row in rows
    ]


_WHY_NOT = (
    "a profile file of Orion (EuroSys'24) identifies launches by position and has no grids, so no launch can be "
    "matched to its rows; measure the program with `orion profile kernels`"
)


def _is_orions(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(HEADER)) == HEADER.encode()
    except OSError:
        return False  # the reader of profiles has a better error


def _check_identity(path: Path, kernel: Kernel) -> None:
    """Reject a kernel whose identity does not match its name and shape, because a user has edited them."""
    from orion.hook import identity

    if kernel.identity is None or kernel.grid is None or kernel.block is None:
        return
    name = (kernel.mangled_name or kernel.name).encode()
    dynamic = kernel.shared_memory.dynamic if kernel.shared_memory else 0
    own = f"{identity.kernel_identity(name, kernel.grid, kernel.block, dynamic):016x}"
    if own != kernel.identity:
        raise Unreadable(
            f"{path}: kernel {kernel.name[:80]}: identity {kernel.identity} does not match its name, grid, block and "
            f"dynamic shared memory, whose identity is {own}; if you changed these, remove the identity"
        )


def give(
    agent: "AgentClient", gpus: "list[agent_pb2.Gpu]", wanted: str | None, rows: "list[agent_pb2.ProfileRow]"
) -> "list[agent_pb2.Slot]":
    """Give rows to slots, and return the slots.

    Args:
        agent: a connection to the running agent.
        gpus: the GPUs whose slots get the rows.
        wanted: the name of one slot; None: all.
        rows: replace the slots' former rows; an empty list removes the profile.

    Raises:
        NotFound: there is no such slot.
    """
    slots = [slot for gpu in gpus for slot in gpu.slots if wanted in (None, slot.name)]
    if not slots:
        known = ", ".join(sorted({slot.name for gpu in gpus for slot in gpu.slots})) or "none"
        which = f"there is no slot {wanted!r}; the slots are: {known}" if wanted else "the agent has no slot yet"
        raise NotFound(which)
    return [agent.set_profile(slot.gpu, slot.name, rows) for slot in slots]
