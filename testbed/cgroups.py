"""The cgroups of a cluster's nodes: this machine's cgroup version, a root cgroup for each node, and their removal.

A kubelet kills unknown processes in the cgroups of pods, so each kubelet needs its own root cgroup.
"""

import contextlib
import os
import time
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PATIENCE = 10.0  # seconds until the kernel has removed killed processes


def mode() -> str:
    """Return `v1` or `v2`, as a container runtime does; a hybrid hierarchy counts as v1."""
    return "v2" if (MOUNT / "cgroup.controllers").exists() else "v1"


def _hierarchies() -> list[Path]:
    if mode() == "v2":
        return [MOUNT]
    if not MOUNT.is_dir():
        return []
    return [path for path in sorted(MOUNT.iterdir()) if path.is_mount() and not path.is_symlink()]


def make(root: str) -> None:
    """Make the cgroup `root`, such as /orion-0/n1, with the controllers that a kubelet needs."""
    for hierarchy in _hierarchies():
        path = hierarchy
        for part in root.strip("/").split("/"):
            parent, path = path, path / part
            if mode() == "v2":
                _pass_on_controllers(parent)
            path.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # in a new v1 cgroup they are empty, so no process could run
                if mode() == "v1" and (path / name).exists():
                    (path / name).write_text((parent / name).read_text())


def _pass_on_controllers(group: Path) -> None:
    for controller in (group / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # some machines lack some controllers; the kubelet reports those it needs
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def found(pattern: str) -> list[str]:
    """Return the top-level cgroups whose names match a pattern."""
    return sorted({f"/{path.name}" for hierarchy in _hierarchies() for path in hierarchy.glob(pattern)})


def remove(root: str) -> None:
    """Remove a cgroup and all below it. Its processes must have been killed; they may need a moment to disappear.

    Raises:
        OSError: a process in it still runs.
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
