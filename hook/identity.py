"""Kernel identities in Python, computed from what a profile contains.

An identity is a hash by which the hook recognises launches that take about the same time: launches of one kernel with
the same grid, block and shared memory.

This module mirrors `hook/src/learning/identity.h`, which defines identities; `tests/hook/test_identity.py` compares the
two. This module makes plain identities only. The hook mixes a mark of the kernel's code into an identity, and no
profile contains that mark. The hook removes the mark to get the plain identity.
"""

_WORD = 2**64 - 1
_KERNEL = 1
_BITS = 3
""" The lowest bits are the kind of the identity. The hash is above these bits. """
_NAME_MAX = 4096

LOCAL = 2
""" This bit marks an identity that was made from a handle. Such an identity is invalid in other processes. """


def mix(value: int) -> int:
    """Return ``orion_mix`` of 64 bits."""
    value ^= value >> 32
    value = value * 0xD6E8FEB86659FD93 & _WORD
    return value ^ value >> 32


def hash_name(name: bytes) -> int:
    """Return the hash of a kernel's mangled name: FNV-1a over its bytes up to the first NUL, mixed."""
    value = 0xCBF29CE484222325
    for byte in name.split(b"\0", 1)[0][:_NAME_MAX]:
        value = (value ^ byte) * 0x100000001B3 & _WORD
    return mix(value)


def kernel_identity(name: bytes, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int) -> int:
    """Return the plain identity of a kernel's launch.

    Args:
        name: the mangled name, as the driver reports it.
        grid: blocks, each below 2^32.
        block: threads, each below 2^32.
        shared_bytes: dynamic shared memory, below 2^32.
    """
    grid_word = grid[0] + (grid[1] << 32) + (grid[2] << 48)
    block_word = block[0] + (block[1] << 11) + (block[2] << 22) + (shared_bytes << 32)
    value = hash_name(name) + grid_word * 0xC2B2AE3D27D4EB4F + block_word * 0x165667B19E3779F9 + _KERNEL
    return mix(value & _WORD) & ~_BITS | 1


def is_reported(identity: int) -> bool:
    """Return whether processes may send ``identity`` to each other."""
    return 0 < identity <= _WORD and identity & _BITS == 1
