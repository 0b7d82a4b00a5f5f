"""Finds the pod of a process on this node: its cgroup names the pod's uid (processes/pod_cgroups.py)."""

from dataclasses import dataclass, field
from pathlib import Path

from orion.node_agent.cluster.state import HolderState
from orion.node_agent.processes.cgroup_folders import PROC
from orion.node_agent.processes.liveness import Stat, is_ending
from orion.node_agent.processes.pod_cgroups import own_cgroups, pod_uid
from orion.node_agent.slots.holders import Holder

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
    is_stopped: bool = field(default=False, compare=False)
    """ By a signal or a tracer. """


def look_up(process_id: int, proc: Path = PROC) -> Process | None:
    """Return what /proc says of a process; None: it has ended, is ending, or is not visible here."""
    folder = proc / str(process_id)
    stat = Stat.of(folder)
    try:
        groups = (folder / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    if stat.started is None or is_ending(folder):
        return None
    uid = pod_uid(groups, own_cgroups(proc))
    return Process(process_id, stat.started, _printable(stat.command), uid, stat.is_stopped)


def holder_of(process_id: int, slot: HolderState) -> Holder | None:
    """Return the pod of a process in a slot: pods with the same claim share the slot."""
    process = look_up(process_id) if slot.sharing else None
    return next((each for each in slot.sharing if process and each.uid == process.pod_uid), slot.holder)


def _printable(text: str) -> str:
    return "".join(each if " " <= each <= "~" else "?" for each in text)[:_COMMAND_MAX]
