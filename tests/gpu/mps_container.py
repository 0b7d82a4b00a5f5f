"""Sets up what MPS sees of a container (mounts, /dev/shm, /proc, a user id), and executes the tests' client.

    python mps_container.py SPECIFICATION

Start it with `unshare --mount`. The specification is JSON: `mounts` [source, target, read only], `own_shm`, `own_pids`,
`user`, `before` (a command that executes the client), `environment`. The program imports nothing of this repository,
because these tests run on machines that may have only Python and the driver.
"""

import contextlib
import ctypes
import json
import os
import sys
from pathlib import Path

_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    """Call mount(2)."""
    if _libc.mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {source} at {target}: {os.strerror(code)}")


def main() -> None:
    """Make the container and execute the client."""
    specification = json.loads(sys.argv[1])
    with contextlib.suppress(OSError):  # if the kernel rejects this flag, no mount is shared anyway
        mount("none", "/", flags=_REC | _PRIVATE)
    for source, target, read_only in specification["mounts"]:
        if Path(source).is_dir():
            Path(target).mkdir(parents=True, exist_ok=True)
        else:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).touch()
        mount(source, target, flags=_BIND)
        if read_only:
            mount(source, target, flags=_BIND | _REMOUNT | _RDONLY)
    if specification["own_pids"]:
        mount("proc", "/proc", "proc")  # a container has its own /proc, where the driver looks up its process
    if specification["own_shm"]:
        mount("tmpfs", "/dev/shm", "tmpfs")
    client = [sys.executable, str(Path(__file__).with_name("mps_client.py")), str(specification["user"])]
    command = [*specification["before"], *client]
    os.execvpe(command[0], command, specification["environment"])


if __name__ == "__main__":
    main()
