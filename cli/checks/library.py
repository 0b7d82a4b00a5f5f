"""Checks that the hook exists, and that this machine's libc loads it.

The section of type GNU_verneed lists, for every needed library, the symbol versions that the library must have.
Reading it takes a dozen lines, so there is no dependency. Rejected: scanning the file for strings. The hook looks up
some versions by name at run time, and those are not required.
"""

import os
import platform
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from orion import hook
from orion.cli.checks import Check, fail, note, ok

HANGS_S = 60  # a program that prints nothing for so long hangs; on a busy machine a start may take seconds
BUILD = "build it here with `pip install .` from the source tree"
_VERNEED = 0x6FFFFFFE  # SHT_GNU_verneed


def examine() -> Iterator[Check]:
    """Check the hook's file, the glibc that it needs, and a process that preloads it."""
    try:
        library = hook.library()
    except FileNotFoundError:
        yield fail("hook library", "liborion_hook.so is not part of this installation", BUILD)
        return
    yield ok("hook library", str(library))
    yield _glibc(library)
    yield _preload(library)
    yield note(
        "programs out of reach", "statically linked programs and programs with another libc (musl) run unmanaged"
    )


def _glibc(library: Path) -> Check:
    name, local = "C library", platform.libc_ver()
    if local[0] != "glibc":
        return fail(name, "this Python does not use glibc, so the hook would pass every call through",
                    "run CUDA programs on a glibc system, which NVIDIA's driver needs")  # fmt: skip
    try:
        needed = newest_glibc(needed_versions(library))
    except ValueError as error:
        return fail(name, f"the hook is unreadable: {error}", BUILD)
    version = ".".join(map(str, needed))
    if needed > tuple(map(int, local[1].split("."))):
        return fail(name, f"the hook needs glibc {version}, this machine has {local[1]}",
                    "install the release wheel, which loads on glibc 2.17 and later, or " + BUILD)  # fmt: skip
    if needed > (2, 17):
        return note(name, f"glibc {local[1]}; this build of the hook needs {version}, so containers with an older "
                          "glibc run unmanaged", "the release wheel loads on glibc 2.17 and later")  # fmt: skip
    return ok(name, f"glibc {local[1]}, the hook needs {version}")


def _preload(library: Path) -> Check:
    """Start a small program under the hook. ld.so prints an error and continues if it cannot load the hook."""
    name = "preloading"
    program = ["/bin/sh", "-c", "grep -c liborion_hook /proc/self/maps"]
    try:
        done = subprocess.run(program, env=os.environ | {"LD_PRELOAD": str(library)}, capture_output=True, text=True,
                              timeout=HANGS_S)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return fail(name, f"a program with the hook does not start: {error}", BUILD)
    if done.returncode != 0 or "cannot be preloaded" in done.stderr:
        reason = " ".join((done.stderr or f"exit status {done.returncode}").split())
        return fail(name, f"the dynamic linker does not load the hook: {reason}", BUILD)
    return ok(name, "a program that starts with LD_PRELOAD loads the hook")


def _sections(data: bytes) -> list[tuple[int, int, int, int]]:
    """Return (type, offset, link, info) of each section of a 64-bit little-endian file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    table, size, count = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HH", data, 0x3A)
    found = []
    for index in range(count):
        _, kind, _, _, offset, _, link, info = struct.unpack_from("<IIQQQQII", data, table + index * size)
        found.append((kind, offset, link, info))
    return found


def needed_versions(path: Path) -> set[str]:
    """Return the symbol versions that a library needs of others, such as ``GLIBC_2.17``.

    Raises:
        ValueError: the file is not a library that this can read.
    """
    data = path.read_bytes()
    versions: set[str] = set()
    try:
        sections = _sections(data)
        for kind, offset, link, count in sections:
            if kind != _VERNEED:
                continue
            names = sections[link][1]
            for _ in range(count):
                _, entries, _, first, following = struct.unpack_from("<HHIII", data, offset)
                entry = offset + first
                for _ in range(entries):
                    _, _, _, name, next_entry = struct.unpack_from("<IHHII", data, entry)
                    versions.add(data[names + name : data.index(b"\0", names + name)].decode())
                    entry += next_entry
                offset += following
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"{path} is damaged") from error
    return versions


def newest_glibc(versions: set[str]) -> tuple[int, ...]:
    """Return the newest GLIBC version among symbol versions, such as (2, 17); (0,) when none is needed."""
    numbers = [tuple(map(int, v[6:].split("."))) for v in versions if v.startswith("GLIBC_") and v[6:7].isdigit()]
    return max(numbers, default=(0,))
