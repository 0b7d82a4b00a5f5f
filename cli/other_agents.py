"""Finds other agents of this machine. Two agents on one GPU do not know of each other's clients.

Each agent has a root: the folder of its sockets and its state (option --root). The folder `gpus` in the root names the
agent's GPUs. If this process cannot read that folder, it assumes that the agent has all GPUs, which is the default.

The process table shows the agents of all users. Rejected: looking for sockets, because a user may be unable to read
another user's folders, and a killed agent leaves its socket.
"""

import itertools
import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orion.node_agent.api import agent_pb2

_SIMULATED_STATE = "ORION_SIM_STATE"


@dataclass(frozen=True)
class OtherAgent:
    """An agent that runs here."""

    process_id: int
    user: int
    root: Path
    seen: Path
    """ The path at which this process finds `root`: an agent in a container has another file system. """

    def gpus(self) -> set[str] | None:
        """Return the UUIDs of the agent's GPUs; None if this user may not read them."""
        try:
            return {folder.name for folder in (self.seen / "gpus").iterdir()}
        except OSError:
            return None

    def __str__(self) -> str:
        return f"process {self.process_id} of user {_name(self.user)}, root {self.root}"


def warnings(root: Path, snapshot: agent_pb2.Snapshot | None, proc: Path = Path("/proc")) -> list[str]:
    """Return a sentence about each agent that shares a GPU with the agent at a root.

    Args:
        root: the folder of the agent that the user asks about.
        snapshot: that agent's answer; None: no agent runs at this root, so every other agent counts.
        proc: the process table.
    """
    found = []
    for other in find(proc):
        if _same(other.seen, root) or (snapshot is not None and other.process_id == snapshot.agent_process_id):
            continue
        shared = _shared(other, snapshot, proc)
        if shared:
            found.append(
                f"another agent ({other}) also manages {shared}: programs of one agent do not wait for programs of the "
                "other; start all of them as one user with one --root"
            )
    return found


def find(proc: Path) -> Iterator[OtherAgent]:
    """Yield the agents in a process table."""
    for folder in proc.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            user = folder.stat().st_uid
            if _is_agent(words):
                root = _root(words, user, folder)
                yield OtherAgent(int(folder.name), user, root, _seen(root, folder))
        except OSError:
            continue  # ended meanwhile


def _is_agent(words: list[str]) -> bool:
    names = [Path(word).name for word in words[:4]]
    return names[0].startswith("python") and any(  # not `sudo orion agent`, which waits for the agent
        (first in ("orion", "orion.cli") and second == "agent") or second == "orion.node_agent"
        for first, second in itertools.pairwise(names)
    )


def _root(words: list[str], user: int, folder: Path) -> Path:
    for number, word in enumerate(words):
        if word == "--root" and number + 1 < len(words):
            return _absolute(words[number + 1], folder)
        if word.startswith("--root="):
            return _absolute(word.partition("=")[2], folder)
    if user == 0:
        return Path("/run/orion")
    try:
        runtime = _variable(folder, "XDG_RUNTIME_DIR")
    except OSError:  # the process of another user
        runtime = f"/run/user/{user}" if Path(f"/run/user/{user}").exists() else ""
    return Path(runtime, "orion") if runtime else Path(f"/tmp/orion-{user}")


def _variable(folder: Path, name: str) -> str:
    """Return a variable of a process's environment; empty if it is not set."""
    for variable in (folder / "environ").read_bytes().split(b"\0"):
        known, _, value = variable.partition(b"=")
        if known == name.encode():
            return os.fsdecode(value)
    return ""


def _absolute(path: str, folder: Path) -> Path:
    try:
        return (folder / "cwd").readlink() / path
    except OSError:  # the process of another user
        return Path(path)


def _seen(path: Path, folder: Path) -> Path:
    """Return the path at which this process finds a file of another process, which may be in a container.

    Args:
        path: the file's path in the other process.
        folder: the other process's folder in /proc.
    """
    beyond = folder / "root" / path.relative_to("/") if path.is_absolute() else path
    return beyond if os.access(folder / "root", os.X_OK) else path


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other


def _shared(other: OtherAgent, snapshot: agent_pb2.Snapshot | None, proc: Path) -> str:
    """Return the GPUs that both agents have, as text; empty for none."""
    if snapshot is None:
        return "GPUs of this machine"
    theirs = other.gpus()
    both = [gpu for gpu in snapshot.gpus if theirs is None or gpu.uuid in theirs]
    # Agents share simulated GPUs only if both use the same simulated machine.
    mine = _machine(snapshot.agent_process_id, proc)
    both = [gpu for gpu in both if not gpu.simulated or _machine(other.process_id, proc) == mine]
    return ", ".join(f"GPU {gpu.index}" for gpu in both)


def _machine(process_id: int, proc: Path) -> str:
    """Return which simulated machine a process uses, as the device and inode of the machine's folder."""
    folder = proc / str(process_id)
    try:
        user = folder.stat().st_uid
        state = _variable(folder, _SIMULATED_STATE) or f"/dev/shm/orion-sim-{user}"
        found = _seen(Path(state), folder).stat()
    except OSError:
        return f"of process {process_id}"  # another user's process counts as a machine of its own
    return f"{found.st_dev}:{found.st_ino}"


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
