"""How many blocks of a kernel one SM holds, and so how many SMs its grid fills.

The arithmetic of cuOccupancyMaxActiveBlocksPerMultiprocessor, which itself needs the kernel's handle in its own
process; a test on a GPU compares the two. Clusters of blocks and named barriers are left out: they limit few kernels.
"""

from dataclasses import dataclass

_REGISTER_UNIT = 256
""" Registers are given out to a warp in units of so many. """
_PARTITIONS = 4
""" An SM has so many schedulers, each with its own part of the registers. """


@dataclass(frozen=True)
class Limits:
    """A device's limits, as the driver tells them.

    Args:
        sms: number of SMs.
        threads_per_sm: resident at once.
        blocks_per_sm: resident at once.
        registers_per_sm: of 32 bits.
        shared_per_sm: bytes.
        reserved_shared_per_block: bytes that the system keeps of each block.
        warp: threads.
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
        0 if not even one fits, which a kernel that has run contradicts.
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
    """Return how many SMs a grid fills when all its blocks run at once; may be more than there are.

    Args:
        limits: the device's.
        blocks: of the whole grid.
        threads: of one block.
        registers: of one thread.
        shared_bytes: static and dynamic, of one block.
    """
    return -(-blocks // max(1, blocks_per_sm(limits, threads, registers, shared_bytes)))
