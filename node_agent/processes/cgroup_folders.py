"""Finds the folder of a process's cgroup, wherever the agent itself is.

/proc/PID/cgroup names a cgroup as the reader sees it. In a container with a cgroup namespace of its own the path begins
at the container's cgroup, and one `..` stands for each level above it: /../../<the rest>. What is above is not named.
So the folder is searched that has the rest of the path as its end and contains the process. How such a path begins does
not change while the agent runs, so it is searched once for each number of `..`. A search reads many folders, so one
that has found nothing is not repeated soon for the same process. Cgroups come and go meanwhile, and a container may
make any number of them: no more than some thousand are looked at, from the top.
"""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

PROC = Path("/proc")
LEVELS_MAX = 4
""" The levels above a pod's cgroup in the kubelet's hierarchy; one more where the node itself is a container. """
FOLDERS_MAX = 4096
""" So many folders of one level are looked at; a node with 250 pods has fewer. """
_SEARCH_AGAIN_SECONDS = 60.0
UNIFIED, _MEMORY = "", "memory"


class CgroupFolders:
    """The folders of the cgroups that count memory.

    Args:
        hierarchy: where the cgroups of the whole machine are mounted.
        proc: /proc.
    """

    def __init__(self, hierarchy: Path, proc: Path = PROC) -> None:
        self._hierarchy, self._proc = hierarchy, proc
        self._begins: dict[tuple[Path, int], Path] = {}
        """ By root and number of `..`. """
        self._failed: dict[int, float] = {}
        """ When a search for a process found nothing, perhaps because the process had just ended. """

    def of(self, process_id: int) -> Path | None:
        """Return the folder of a process's cgroup; None: it has ended, or the folder is not visible here."""
        try:
            text = (self._proc / str(process_id) / "cgroup").read_text(errors="replace")
        except OSError:
            return None
        controller, path = memory_path(text)
        if not path:
            return None
        root = self._hierarchy / _MEMORY if controller == _MEMORY else self._hierarchy
        above, below = split(path)
        if not below:  # it is in the root, or in a cgroup above that of the agent, which is not named
            return root if contains(root, process_id) else None
        known = self._begins.get((root, above), root) / below
        if contains(known, process_id):
            return known
        return self._search(root, above, below, process_id)

    def _search(self, root: Path, above: int, below: str, process_id: int) -> Path | None:
        now = time.monotonic()
        self._failed = {each: at for each, at in self._failed.items() if now - at < _SEARCH_AGAIN_SECONDS}
        if process_id in self._failed:
            return None
        folder = next((each for each in folders_ending(root, below) if contains(each, process_id)), None)
        if folder is None:
            self._failed[process_id] = now
        else:
            self._begins[root, above] = folder.parents[below.count("/")]
        return folder

    def upwards(self, folder: Path) -> list[Path]:
        """Return a cgroup and all those above it that are visible, upwards."""
        root = self._root(folder)
        return [each for each in (folder, *folder.parents) if each == root or root in each.parents]

    def name(self, folder: Path) -> str:
        """Return the path of a cgroup within its hierarchy."""
        rest = folder.relative_to(self._root(folder))
        return f"/{rest}" if rest.parts else "/"

    def _root(self, folder: Path) -> Path:
        memory = self._hierarchy / _MEMORY
        return memory if folder == memory or memory in folder.parents else self._hierarchy


def memory_path(text: str) -> tuple[str, str]:
    """Return the controller and the path of the cgroup that counts memory, in the content of a /proc/PID/cgroup.

    Returns:
        The controller is `memory` for v1, empty for v2; the path is empty if no line names one.
    """
    found = paths(text)
    controller = _MEMORY if _MEMORY in found else UNIFIED
    return controller, found.get(controller, "")


def paths(text: str) -> dict[str, str]:
    """Return the path of the cgroup of each controller, in the content of a /proc/PID/cgroup; that of v2 is UNIFIED."""
    found: dict[str, str] = {}
    for line in text.split("\n"):  # the name of a cgroup may have any other character that ends a line in Python
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path.startswith("/"):
            found |= dict.fromkeys(controllers.split(","), path)
    return found


def split(path: str) -> tuple[int, str]:
    """Return how many `..` a path has, and the rest without them."""
    parts = [part for part in path.split("/") if part]
    return parts.count(".."), "/".join(part for part in parts if part != "..")


def folders_ending(root: Path, below: str) -> Iterator[Path]:
    """Yield where a cgroup may be whose path ends so: the beginning is not known where the agent is in a container."""
    level = [root]
    yield root / below
    for _ in range(LEVELS_MAX):
        level = list(islice(chain.from_iterable(map(_inside, level)), FOLDERS_MAX))
        yield from (folder / below for folder in level)


def _inside(folder: Path) -> Iterable[Path]:
    """Return the folders in a folder; none if it has been removed."""
    try:
        with os.scandir(folder) as entries:
            return [Path(entry) for entry in islice(entries, FOLDERS_MAX) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def contains(folder: Path, process_id: int) -> bool:
    """Return whether a process is in the cgroup, and not in one below it."""
    try:
        return str(process_id) in (folder / "cgroup.procs").read_text(errors="replace").split()
    except OSError:
        return False
