"""The cgroups of pods and containers: no process can leave its cgroup, so it names the pod of the process.

This module reads both formats in which the kubelet names cgroups, with cgroup v1 and v2:

    12:memory:/kubepods/burstable/pod5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a/<container>
    0::/kubepods.slice/kubepods-pod5e4f6a2c_0d1b_4c3a_9f8e_7b6a5d4c3b2a.slice/cri-containerd-<container>.scope

In a container, the kernel writes these paths relative to the container's own cgroup (`cgroup_folders.py`).
"""

import re
from enum import Enum
from pathlib import Path

from orion.node_agent.processes.cgroup_folders import PROC, UNIFIED, contains, folders_ending, paths, split

HIERARCHY = Path("/sys/fs/cgroup")
_HEX = "[0-9a-f]"
_POD = re.compile(rf"[/-]pod({_HEX}{{8}}([-_]?){_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{12}})(?:\.slice)?/")


def pod_uid(groups: str) -> str:
    """Return the uid of the pod in the content of a /proc/PID/cgroup; empty: none."""
    for line in groups.splitlines():
        # Use the last match: on a node that is itself a pod, the outer pod comes first.
        found = [match.group(1) for match in _POD.finditer(f"{line}/")]
        if found:
            plain = found[-1].replace("_", "-")
            return plain if "-" in plain else _with_dashes(plain)
    return ""


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
    below = split(paths(groups).get(UNIFIED, ""))[1]
    ends = [match.end() for match in _POD.finditer(f"/{below}/")]
    inside = f"/{below}/"[ends[-1] :].strip("/").split("/") if ends else [""]
    if not inside[0]:
        return None
    folder = next((each for each in folders_ending(hierarchy, below) if contains(each, process_id)), None)
    return folder and [folder, *folder.parents][len(inside) - 1]


class Level(Enum):
    """What a cgroup is in the kubelet's hierarchy."""

    CONTAINER = "container"
    POD = "pod"
    OTHER = "other"


def level(path: str) -> Level:
    """Return what the cgroup of that path is."""
    ends = [match.end() for match in _POD.finditer(f"{path}/")]
    if not ends:
        return Level.OTHER
    return Level.POD if ends[-1] >= len(path) else Level.CONTAINER


def _with_dashes(plain: str) -> str:
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))
