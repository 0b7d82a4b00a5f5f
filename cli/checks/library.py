"""Checks that the hook exists, and that this machine's libc loads it."""

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

from orion import hook
from orion.cli.checks import Check, elf, fail, note, ok

BUILD = "build it here with `pip install .` from the source tree"


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
        needed = elf.newest_glibc(elf.needed_versions(library))
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
                              timeout=10)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return fail(name, f"a program with the hook does not start: {error}", BUILD)
    if done.returncode != 0 or "cannot be preloaded" in done.stderr:
        reason = " ".join((done.stderr or f"exit status {done.returncode}").split())
        return fail(name, f"the dynamic linker does not load the hook: {reason}", BUILD)
    return ok(name, "a program that starts with LD_PRELOAD loads the hook")
