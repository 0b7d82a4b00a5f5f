"""Turns what `unshare` started into a container, as a runtime does, and executes its program.

    unshare --mount --pid --fork python enter_container.py JSON

The program is process 1, an unprivileged user without capabilities and without a way to get any. Its root is read-only,
and it has its own /dev/shm and /proc. A pod of the security standard `restricted` runs the same way.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

READ_ONLY, NO_SUID, NO_DEVICES, NO_EXECUTION = 1, 2, 4, 8
REMOUNT, BIND, RECURSIVE, PRIVATE = 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
LAST_CAPABILITY = int(Path("/proc/sys/kernel/cap_last_cap").read_text())

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(source: str, target: Path, kind: str, flags: int) -> None:
    arguments = source.encode(), bytes(target), kind.encode()
    checked(libc.mount(*arguments, ctypes.c_ulong(flags), None), f"mount {source} {target}")


def bind(source: str, target: Path, flags: int) -> None:
    """Mount a file or folder. As a runtime does, make the mount point if it is missing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if Path(source).is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    mount(source, target, "", BIND)
    mount(source, target, "", BIND | REMOUNT | flags)


def build_root(root: Path, mounts: list[tuple[str, str, bool]]) -> None:
    mount("none", Path("/"), "", RECURSIVE | PRIVATE)
    mount(str(root), root, "", BIND)
    for source, target, read_only in [*mounts, ("/dev/null", "/dev/null", False)]:
        bind(source, root / target.lstrip("/"), NO_SUID | (READ_ONLY if read_only else 0))
    for kind, place in (("proc", root / "proc"), ("tmpfs", root / "dev" / "shm")):
        place.mkdir(parents=True, exist_ok=True)
        mount(kind, place, kind, NO_SUID | NO_DEVICES | NO_EXECUTION)
    mount(str(root), root, "", BIND | REMOUNT | READ_ONLY)
    os.chroot(root)
    os.chdir("/")


def drop_privileges(user: int) -> None:
    for capability in range(LAST_CAPABILITY + 1):
        checked(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "capability")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    checked(
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "death signal"
    )  # set last, because a change of the user clears it


def main() -> None:
    wanted: dict[str, Any] = json.loads(sys.argv[1])
    build_root(Path(wanted["root"]), wanted["mounts"])
    drop_privileges(wanted["user"])
    os.umask(0o022)
    os.execve(wanted["command"][0], wanted["command"], wanted["environment"])


if __name__ == "__main__":
    main()
