"""Converts a GPUProfile into the rows that the agent sends to clients.

Each row has the identity by which the hook recognises a launch: a hash of the kernel's name, grid, block and shared
memory (`orion.hook.identity`).

This conversion is not in `slots/knowledge.py`: the hash reads every character of every name, and C++ kernels have long
names. So the process that has the profile computes the hashes, not the agent's event loop.
"""

from dataclasses import dataclass

from orion.crds.profile import GPUProfile, SharedGpuRow, shared_gpu_rows
from orion.hook import identity, join, layout


@dataclass(frozen=True)
class ProfileRow:
    """A row for one kernel; see `knowledge.Row`."""

    identity: int
    duration_ns: int
    sms: int
    kernel_class: layout.KernelClass


def identity_of(row: SharedGpuRow) -> int:
    """Return the plain identity of a launch of this row (`orion.hook.identity` says what an identity is)."""
    return identity.kernel_identity(row.name.encode(), row.grid, row.block, row.shared_bytes)


def rows_of(profile: GPUProfile) -> list[ProfileRow]:
    """Return the rows of a profile, kernels with the most GPU time first, at most as many as a table holds.

    The function skips kernels without a grid and a block. A profile in Orion's CSV format has only such kernels.
    """
    return [
        ProfileRow(identity_of(row), row.duration_ns, row.sms, layout.KernelClass(row.kernel_class))
        for row in shared_gpu_rows(profile)[: join.KNOWLEDGE_ENTRIES]
    ]
