"""The cgroups of pods and containers: no process can leave its cgroup, so it names the pod of the process.

This module reads both formats in which the kubelet names cgroups, with cgroup v1 and v2:

    12:memory:/kubepods/burstable/pod5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a/<container>
    0::/kubepods.slice/kubepods-pod5e4f6a2c_0d1b_4c3a_9f8e_7b6a5d4c3b2a.slice/cri-containerd-<container>.scope

In a container, the kernel writes these paths relative to the container's own cgroup (`cgroup_folders.py`).

A container may make cgroups below its own, and may name them like those of another pod. On a node that is itself a
pod, the cgroup of the outer pod is above those of the node's pods. So neither the last nor the first such name counts,
but the first one below what the path has in common with that of the agent: the cgroup that the agent shares with
another pod is above that pod's. If the cgroup that both share is itself that of a pod, both are in that pod.
"""

import os.path
import re
from collections.abc import Mapping
from enum import Enum
from functools import cache
from pathlib import Path

from orion.node_agent.processes.cgroup_folders import PROC, UNIFIED, contains, folders_ending, paths, split

HIERARCHY = Path("/sys/fs/cgroup")
_HEX = "[0-9a-f]"
_POD = re.compile(rf"[/-]pod({_HEX}{{8}}([-_]?){_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{12}})(?:\.slice)?/")


@cache
def own_cgroups(proc: Path = PROC) -> Mapping[str, str]:
    """Return the path of this program's cgroup for each controller, read once: it does not change."""
    try:
        return paths((proc / "self" / "cgroup").read_text(errors="replace"))
    except OSError:
        return {}


def pod_uid(groups: str, own: Mapping[str, str]) -> str:
    """Return the uid of the pod of a process; empty: it is in none.

    Args:
        groups: the content of its /proc/PID/cgroup.
        own: the path of the agent's cgroup for each controller.
    """
    for controller, path in paths(groups).items():
        if (found := _pod(path, own.get(controller, "/"))) is not None:
            plain = found[1].replace("_", "-")
            return plain if "-" in plain else _with_dashes(plain)
    return ""


def _pod(path: str, own: str) -> re.Match[str] | None:
    """Return the part of a cgroup's path that names the pod, in the path with a slash at its end."""
    shared = len(os.path.commonpath((own, path)).rstrip("/")) + 1
    found = list(_POD.finditer(f"{path}/"))
    return next((each for each in found if each.end() >= shared), found[-1] if found else None)


def container_cgroup(process_id: int, proc: Path = PROC, hierarchy: Path = HIERARCHY) -> Path | None:
    """Return the folder of the cgroup of the container that a process is in.

    Args:
        process_id: the process, as this agent sees it.
        proc: /proc.
        hierarchy: where the cgroups of the whole machine are mounted.

    Returns:
        None: the process has ended or is in no pod, or the machine has cgroup v1, or the folder is not visible here.
    """
    try:
        groups = (proc / str(process_id) / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    path = paths(groups).get(UNIFIED, "/")
    pod = _pod(path, own_cgroups(proc).get(UNIFIED, "/"))
    inside = path[pod.end() :].split("/") if pod is not None else [""]
    if not inside[0]:
        return None
    below = split(path)[1]
    folder = next((each for each in folders_ending(hierarchy, below) if contains(each, process_id)), None)
    return folder and [folder, *folder.parents][len(inside) - 1]


class Level(Enum):
    """What a cgroup is in the kubelet's hierarchy."""

    CONTAINER = "container"
    POD = "pod"
    OTHER = "other"


def level(path: str) -> Level:
    """Return what a cgroup is, by its path alone: a container may choose the end, so this is for sentences only."""
    ends = [match.end() for match in _POD.finditer(f"{path}/")]
    if not ends:
        return Level.OTHER
    return Level.POD if ends[-1] >= len(path) else Level.CONTAINER


def _with_dashes(plain: str) -> str:
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))
