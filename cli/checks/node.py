"""Checks the agent's root (its folder), other agents, limits, and what the agent can see."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from orion.cli import agents, other_agents, roots
from orion.cli.checks import Check, fail, note, ok
from orion.errors import OrionError

# While a client joins, the agent opens a connection and up to four pages for it. A GPU has at most 512 clients.
DESCRIPTORS_FOR_A_GPU = 4096


def examine(root: Path) -> Iterator[Check]:
    """Check the root, the agents, limits and the process table."""
    yield _root(root)
    yield _agent(root)
    yield from _resource_files(root)
    yield from _other_agents(root)
    yield _descriptors()
    yield _processes()


def _root(root: Path) -> Check:
    name = "root directory"
    place = root
    while not os.path.exists(place) and place != place.parent:  # Path.exists raises in a folder of another user
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        return fail(
            name, f"{root}: {place} is not writable for this user", "run the agent as root, or give another --root"
        )
    if root.exists() and not root.is_dir():
        return fail(name, f"{root} is not a directory", "remove it, or give another --root")
    return ok(name, f"{root}{'' if root.exists() else ' can be made'}")


def _agent(root: Path) -> Check:
    name = "node agent"
    if not os.path.exists(root / roots.AGENT_SOCKET):
        return note(
            name, f"no agent runs at {root}", "`orion run` starts one; `orion agent` runs one in the foreground"
        )
    try:
        snapshot = agents.ask(root)
    except Exception as error:  # any error is the finding
        return fail(
            name, f"does not answer at {root}: {error}", f"end it (`orion stop`), or look at {root / roots.AGENT_LOG}"
        )
    count = len(snapshot.gpus)
    text = f"version {snapshot.agent_version}, process {snapshot.agent_process_id}, {count} GPU{'s' * (count != 1)}"
    return (
        ok(name, text)
        if count
        else note(name, text, "end it (`orion stop`), then start it again when a GPU is there, or with --simulated")
    )


def _resource_files(root: Path) -> Iterator[Check]:
    """Check the resource files of the agent, if it reads any."""
    try:
        with agents.asking(root) as agent:
            rules = agent.rules()
    except OrionError:
        return  # no agent, which has its own check, or one without such files
    remarks = {each.file: list(each.remarks) for each in rules.gpus}
    for file, found in remarks.items():
        for remark in found:
            yield note("resource file", remark, "correct the file; the agent reads it again at once")
        if not found:
            yield ok("resource file", f"{file} is in force")


def _other_agents(root: Path) -> Iterator[Check]:
    """Look for agents of other roots on the same GPUs."""
    try:
        snapshot = agents.ask(root)
    except Exception:  # the check before has reported the error
        snapshot = None
    found = [sentence.partition("; ") for sentence in other_agents.warnings(root, snapshot)]
    if found:
        yield note("other agents", "; ".join(reason for reason, _, _ in found), found[0][2])


def _descriptors() -> Check:
    name = "open files"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_FOR_A_GPU:
        return note(name, f"a process may open at most {hard}; 512 clients on a GPU need {DESCRIPTORS_FOR_A_GPU}",
                    "raise the hard limit (`ulimit -Hn`, LimitNOFILE= of the service)")  # fmt: skip
    return ok(name, "no limit" if hard == resource.RLIM_INFINITY else f"a process may open at most {hard}")


def _processes() -> Check:
    """Check that other users' processes are visible: the agent finds stopped clients in the process table."""
    name = "process table"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, _, options = line.split()[:4]
        if place == "/proc" and any(o in options.split(",") for o in ("hidepid=1", "hidepid=2", "hidepid=invisible")):
            return note(name, "/proc hides other users' processes (hidepid): the agent notices stopped clients late",
                        "run the agent as root or in the group that may see all processes")  # fmt: skip
    return ok(name, "/proc shows all processes")
