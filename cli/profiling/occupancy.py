"""Computes how many blocks of a kernel fit on one SM, and how many SMs its grid fills.

The result equals that of cuOccupancyMaxActiveBlocksPerMultiprocessor, which needs the kernel's handle in the kernel's
own process; a test on a GPU compares the two. Clusters of blocks and named barriers are ignored: they limit few
kernels.
"""

from dataclasses import dataclass

_REGISTER_UNIT = 256
""" The number of registers in one unit of allocation to a warp. """
_PARTITIONS = 4
""" The number of schedulers of an SM; each has its own part of the registers. """


@dataclass(frozen=True)
class Limits:
    """A device's limits, as the driver reports them.

    Args:
        sms: number of SMs.
        threads_per_sm: the most that are resident at once.
        blocks_per_sm: the most that are resident at once.
        registers_per_sm: registers of 32 bits.
        shared_per_sm: shared memory in bytes.
        reserved_shared_per_block: bytes that the system reserves for each block.
        warp: threads of one warp.
        major: of the compute capability.
    """

    sms: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    shared_per_sm: int
    reserved_shared_per_block: int
    warp: int
    major: int


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def blocks_per_sm(limits: Limits, threads: int, registers: int, shared_bytes: int) -> int:
    """Return how many blocks of a kernel are resident on one SM at once.

    Args:
        limits: the device's.
        threads: of one block.
        registers: of one thread.
        shared_bytes: static and dynamic, of one block.

    Returns:
        0 if no block fits; that cannot happen for a kernel that has run.
    """
    warps = max(1, -(-threads // limits.warp))
    most = min(limits.blocks_per_sm, limits.threads_per_sm // limits.warp // warps)
    if registers > 0:
        of_warp = _up(registers * limits.warp, _REGISTER_UNIT)
        most = min(most, limits.registers_per_sm // _PARTITIONS // of_warp * _PARTITIONS // warps)
    shared = _up(shared_bytes + limits.reserved_shared_per_block, 128 if limits.major >= 8 else 256)
    if shared > 0:
        most = min(most, limits.shared_per_sm // shared)
    return most


def sms_needed(limits: Limits, blocks: int, threads: int, registers: int, shared_bytes: int) -> int:
    """Return how many SMs a grid fills if all of its blocks run at once; this may exceed the number of SMs.

    Args:
        limits: the device's.
        blocks: of the whole grid.
        threads: of one block.
        registers: of one thread.
        shared_bytes: static and dynamic, of one block.
    """
    return -(-blocks // max(1, blocks_per_sm(limits, threads, registers, shared_bytes)))
