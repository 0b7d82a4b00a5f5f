"""How much host memory a process may still take: what its cgroup, each cgroup above it, and the node have left.

The kernel charges what a process takes to its cgroup and to all those above. Each may have a limit, and the smallest
rest counts. Pages of files that a cgroup has read are part of what it uses, but the kernel drops them when it needs the
room, unless they have yet to be written. Beyond `memory.high` the kernel slows a cgroup down so much that a copy of
gigabytes would hardly end, so `memory.high` counts as a limit. Swap does not count as room.

With cgroup v1, also in a hybrid hierarchy, the controller of memory has a hierarchy of its own in the folder `memory`.
What cannot be read is not known, and is no limit.
"""

from collections.abc import Mapping
from pathlib import Path

from orion.node_agent.processes.cgroup_folders import PROC, CgroupFolders

_NODE_KEEPS = 1 << 30
""" What stays available on the node: more than what lets the kubelet evict pods (100 MiB, if nobody has set it). """
_V1_UNLIMITED = 1 << 62
""" v1 writes a number near 2^63 for no limit. """
_V1, _V2 = "memory.limit_in_bytes", "memory.max"


def amount(text: str) -> int | None:
    """Return the bytes that a file of a cgroup says; None: no limit, or nothing that can be read."""
    plain = text.strip()
    value = int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 20 else None
    return None if value is None or value >= _V1_UNLIMITED else value


def figures(text: str, separator: str | None = None) -> dict[str, int]:
    """Return the lines of a memory.stat or of /proc/meminfo as numbers; other lines are left out."""
    parts = (line.split(separator, 1) for line in text.splitlines())
    named = ((part[0].strip(), amount(part[1].removesuffix("kB"))) for part in parts if len(part) == 2)
    return {name: value for name, value in named if value is not None}


def droppable(stat: Mapping[str, int]) -> int:
    """Return how many bytes of files a cgroup has in memory that the kernel can drop at once, with those below it."""
    total = "total_" if "total_inactive_file" in stat else ""  # in v1 the other figures are of the cgroup alone
    names = ("dirty", "writeback") if total else ("file_dirty", "file_writeback")
    files = sum(stat.get(f"{total}{name}", 0) for name in ("inactive_file", "active_file"))
    return max(0, files - sum(stat.get(f"{total}{name}", 0) for name in names))


class HostMemory:
    """The host memory of this machine.

    Args:
        hierarchy: where the cgroups of the whole machine are mounted.
        proc: /proc.
    """

    def __init__(self, hierarchy: Path, proc: Path = PROC) -> None:
        self._folders, self._proc = CgroupFolders(hierarchy, proc), proc

    def cgroups(self, process_id: int) -> list[Path]:
        """Return the cgroups to which a process is charged, its own first; empty: they are not visible here."""
        own = self._folders.of(process_id)
        return [] if own is None else self._folders.upwards(own)

    def name(self, folder: Path) -> str:
        """Return how people know a cgroup: its path."""
        return self._folders.name(folder)

    def left(self, folder: Path) -> int | None:
        """Return what a cgroup may still take, in bytes, never below 0; None: it has no limit, or nobody knows."""
        v1 = (folder / _V1).exists()
        limits = [amount(_read(folder / name)) for name in ((_V1,) if v1 else (_V2, "memory.high"))]
        known = [each for each in limits if each is not None]
        used = amount(_read(folder / ("memory.usage_in_bytes" if v1 else "memory.current")))
        if not known or used is None:
            return None
        return max(0, min(known) - used + min(used, droppable(figures(_read(folder / "memory.stat")))))

    def node_left(self) -> int | None:
        """Return what the node may still give, in bytes, with a margin; None: it does not say."""
        available = figures(_read(self._proc / "meminfo"), ":").get("MemAvailable")
        return None if available is None else max(0, (available << 10) - _NODE_KEEPS)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
