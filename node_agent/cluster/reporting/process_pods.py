"""Finds the pod of a process on this node: its cgroup names the pod's uid, and no process can leave its cgroup.

This module reads both formats in which the kubelet names cgroups, with cgroup v1 and v2:

    12:memory:/kubepods/burstable/pod5e4f6a2c-0d1b-4c3a-9f8e-7b6a5d4c3b2a/<container>
    0::/kubepods.slice/kubepods-pod5e4f6a2c_0d1b_4c3a_9f8e_7b6a5d4c3b2a.slice/cri-containerd-<container>.scope
"""

import re
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_HEX = "[0-9a-f]"
_POD = re.compile(rf"[/-]pod({_HEX}{{8}}([-_]?){_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{4}}\2{_HEX}{{12}})(?:\.slice)?/")
_COMMAND_MAX = 64


@dataclass(frozen=True)
class Process:
    """A process of this machine; its start time distinguishes it from a later process with the same id."""

    process_id: int
    started: int
    """ Clock ticks since the machine's boot. """
    command: str
    """ Printable ASCII. """
    pod_uid: str
    """ Empty: the process is in no pod. """


def look_up(process_id: int, proc: Path = _PROC) -> Process | None:
    """Return what /proc says of a process; None: it has ended, or is not visible here."""
    folder = proc / str(process_id)
    try:
        head, _, tail = (folder / "stat").read_text(errors="replace").rpartition(")")
        groups = (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    fields = tail.split()
    if len(fields) < 20 or fields[0] in "ZX":
        return None
    return Process(process_id, int(fields[19]), _printable(head.partition("(")[2]), pod_uid(groups))


def pod_uid(groups: str) -> str:
    """Return the uid of the pod in the content of a /proc/PID/cgroup; empty: none."""
    for line in groups.splitlines():
        # Use the last match: on a node that is itself a pod, the outer pod comes first.
        found = [match.group(1) for match in _POD.finditer(f"{line}/")]
        if found:
            plain = found[-1].replace("_", "-")
            return plain if "-" in plain else _with_dashes(plain)
    return ""


def _with_dashes(plain: str) -> str:
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def _printable(text: str) -> str:
    return "".join(each if " " <= each <= "~" else "?" for each in text)[:_COMMAND_MAX]
