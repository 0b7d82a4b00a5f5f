"""Runs a program in a mount namespace, with the mounts and environment of an Allocate answer, as a container would.

    python container.py SPECIFICATION PROGRAM ARGUMENTS...

Start it under `unshare --mount`. The specification is JSON: `mounts` [source, target, read only] and the `environment`.
It applies mounts as a container runtime does: it creates a missing source as a folder, and creates a missing target in
an overlay on the machine's own files.
"""

import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path

_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Call mount(2)."""
    arguments = (source.encode(), os.fsencode(target), kind.encode() or None, flags, data.encode() or None)
    if _libc.mount(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {source} at {target}: {os.strerror(code)}")


def layered(folder: Path, above: Path) -> None:
    """Make `folder` writable for this process alone, by an overlay."""
    upper, work = above / f"upper{folder.name}", above / f"work{folder.name}"
    upper.mkdir()
    work.mkdir()
    mount("overlay", folder, "overlay", 0, f"lowerdir={folder},upperdir={upper},workdir={work}")


def apply(mounts: list[tuple[str, str, bool]]) -> None:
    """Apply all mounts, in order."""
    mount("none", Path("/"), flags=_REC | _PRIVATE)
    above = Path(tempfile.mkdtemp(prefix="orion-container-", dir="/tmp"))
    mount("tmpfs", above, "tmpfs")
    mount("tmpfs", Path("/run"), "tmpfs")  # hides the machine's own agent
    for folder in ("/etc", "/usr"):
        if any(target.startswith(folder) for _, target, _ in mounts):
            layered(Path(folder), above)
    for source, target, read_only in mounts:
        begin, end = Path(source), Path(target)
        if not begin.exists():
            begin.mkdir(parents=True)
        if begin.is_dir():
            end.mkdir(parents=True, exist_ok=True)
        else:
            end.parent.mkdir(parents=True, exist_ok=True)
            if not end.exists():
                end.touch()
        mount(source, end, flags=_BIND)
        if read_only:
            mount(source, end, flags=_BIND | _REMOUNT | _RDONLY)


def main() -> None:
    """Apply the specification and run the program."""
    specification = json.loads(sys.argv[1])
    apply([tuple(each) for each in specification["mounts"]])
    os.execvpe(sys.argv[2], sys.argv[2:], specification["environment"])


if __name__ == "__main__":
    main()
