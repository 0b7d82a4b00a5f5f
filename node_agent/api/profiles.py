"""A GPUProfile as rows of knowledge: what its kernels' launches are known by on the GPU.

Apart from `knowledge`, for the hash runs over every letter of every name (C++ kernels have long ones): whoever holds
the profile makes the rows, and the agent's loop takes them ready made.
"""

from dataclasses import dataclass

from orion.crds.profile import GPUProfile, SharedGpuRow, shared_gpu_rows
from orion.hook import identity, join, layout


@dataclass(frozen=True)
class ProfileRow:
    """One kernel, see `knowledge.Row`."""

    identity: int
    duration_ns: int
    sms: int
    kernel_class: layout.KernelClass


def identity_of(row: SharedGpuRow) -> int:
    """Return what the hook knows such a launch by, whatever its code is marked with."""
    return identity.kernel_identity(row.name.encode(), row.grid, row.block, row.shared_bytes)


def rows_of(profile: GPUProfile) -> list[ProfileRow]:
    """Return the rows of a profile, as many as a table holds, the kernels with the most GPU time first.

    Kernels without a shape are left out, as all are that come from Orion's CSV: it has neither grids nor blocks.
    """
    return [
        ProfileRow(identity_of(row), row.duration_ns, row.sms, layout.KernelClass(row.kernel_class))
        for row in shared_gpu_rows(profile)[: join.KNOWLEDGE_ENTRIES]
    ]
