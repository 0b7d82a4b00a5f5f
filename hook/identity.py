"""The hook's identities of kernels, made of what a profile knows of them.

A mirror of `hook/src/learning/identity.h`, which says what identities are; `tests/hook/test_identity.py` compares the
two. Only plain identities are made here: the hook mixes in a mark of the kernel's code, which no profile has, and finds
the plain one again by taking the mark off.
"""

_WORD = 2**64 - 1
_KERNEL = 1
_BITS = 3
""" The lowest bits say what an identity is; the hash is above them. """
_NAME_MAX = 4096

LOCAL = 2
""" Made of a handle: says nothing to another process. """


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
        name: mangled, as the driver tells it.
        grid: blocks, each below 2^32.
        block: threads, each below 2^32.
        shared_bytes: dynamic, below 2^32.
    """
    grid_word = grid[0] + (grid[1] << 32) + (grid[2] << 48)
    block_word = block[0] + (block[1] << 11) + (block[2] << 22) + (shared_bytes << 32)
    value = hash_name(name) + grid_word * 0xC2B2AE3D27D4EB4F + block_word * 0x165667B19E3779F9 + _KERNEL
    return mix(value & _WORD) & ~_BITS | 1


def is_told(identity: int) -> bool:
    """Return whether ``identity`` can be one that processes tell each other."""
    return 0 < identity <= _WORD and identity & _BITS == 1
