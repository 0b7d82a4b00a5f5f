"""The cgroups of a cluster's nodes: which mode this machine has, a root for each node, and their removal.

A kubelet kills what it finds in pods' cgroups that it does not know, so no two may have the same root.
"""

import contextlib
import os
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PATIENCE = 10.0  # seconds until the kernel has let go of processes that were killed


def mode() -> str:
    """Return `v1` or `v2`: what a container runtime uses here; a hybrid of both is v1 to it."""
    return "v2" if (MOUNT / "cgroup.controllers").exists() else "v1"


def _hierarchies() -> list[Path]:
    if mode() == "v2":
        return [MOUNT]
    if not MOUNT.is_dir():
        return []
    return [path for path in sorted(MOUNT.iterdir()) if path.is_mount() and not path.is_symlink()]


def make(root: str) -> None:
    """Make the cgroup `root`, such as /orion-0/n1, with all that a kubelet asks of it."""
    for hierarchy in _hierarchies():
        path = hierarchy
        for part in root.strip("/").split("/"):
            parent, path = path, path / part
            if mode() == "v2":
                _pass_on_controllers(parent)
            path.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new one of v1, and then nothing can run in it
                if mode() == "v1" and (path / name).exists():
                    (path / name).write_text((parent / name).read_text())


def _pass_on_controllers(group: Path) -> None:
    for controller in (group / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # some cannot be had everywhere; the kubelet names what it misses
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def found(pattern: str) -> list[str]:
    """Return the cgroups right under the root whose names match a pattern."""
    return sorted({f"/{path.name}" for hierarchy in _hierarchies() for path in hierarchy.glob(pattern)})


def remove(root: str) -> None:
    """Remove a cgroup and all below it; its processes have been killed, and may need a moment to be gone.

    Raises:
        OSError: something in it lives on.
    """
    deadline = time.monotonic() + PATIENCE
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / root.strip("/"), topdown=False):
            _remove(Path(folder), deadline)


def _remove(folder: Path, deadline: float) -> None:
    while True:
        try:
            return folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
