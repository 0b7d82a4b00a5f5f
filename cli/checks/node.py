"""The machine around the agent: its root, limits, and what it lets the agent see."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from orion.cli import agents, roots
from orion.cli.checks import Check, fail, note, ok

# A client costs the agent a connection and up to four pages while it joins; 512 clients on one GPU.
DESCRIPTORS_FOR_A_GPU = 4096
LONGEST_SOCKET_PATH = 107  # bytes of sockaddr_un.sun_path, without the closing zero
LONGEST_BELOW_ROOT = len("/run/4194304/slots/GPU-00000000-0000-0000-0000-000000000000/agent.sock")


def examine(root: Path) -> Iterator[Check]:
    """Look at the root, the agent, limits and the process table."""
    yield _root(root)
    yield _agent(root)
    yield _descriptors()
    yield _processes()


def _root(root: Path) -> Check:
    name = "root directory"
    if len(os.fsencode(root)) + LONGEST_BELOW_ROOT > LONGEST_SOCKET_PATH:
        return fail(name, f"{root} is too long a path for sockets below it", "give a shorter one with --root")
    place = root
    while not place.exists() and place != place.parent:
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        return fail(name, f"{root}: {place} is not writable for this user", "run the agent as root, or give --root")
    if root.exists() and not root.is_dir():
        return fail(name, f"{root} is not a directory", "remove it, or give another --root")
    return ok(name, f"{root}{'' if root.exists() else ' can be made'}")


def _agent(root: Path) -> Check:
    name = "node agent"
    if not (root / roots.AGENT_SOCKET).exists():
        return note(name, f"none runs at {root}", "`orion run` starts one; `orion agent` runs one in the foreground")
    try:
        snapshot = agents.ask(root)
    except Exception as error:  # whatever is wrong with it is the finding
        return fail(name, f"does not answer at {root}: {error}", f"end it, or see {root / roots.AGENT_LOG}")
    count = len(snapshot.gpus)
    told = f"version {snapshot.agent_version}, process {snapshot.agent_process_id}, {count} GPU{'s' * (count != 1)}"
    return ok(name, told) if count else note(name, told, "an agent without GPUs manages nothing; start it with --sim")


def _descriptors() -> Check:
    name = "open files"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_FOR_A_GPU:
        return note(name, f"at most {hard} for a process; 512 clients on a GPU need {DESCRIPTORS_FOR_A_GPU}",
                    "raise the hard limit (`ulimit -Hn`, LimitNOFILE= of the service)")  # fmt: skip
    return ok(name, "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard} for a process")


def _processes() -> Check:
    """Other users' processes must be visible: the agent sees there that a client was stopped."""
    name = "process table"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, _, options = line.split()[:4]
        if place == "/proc" and any(o in options.split(",") for o in ("hidepid=1", "hidepid=2", "hidepid=invisible")):
            return note(name, "/proc hides other users' processes (hidepid); stopped clients are noticed a second late",
                        "run the agent as root or in the group that may see them")  # fmt: skip
    return ok(name, "/proc shows all processes")
