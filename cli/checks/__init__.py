"""What `orion doctor` looks at, one file a subject.

    library     the hook is there, and this machine's libc loads it
    driver      the NVIDIA driver and its GPUs
    kernel      what the hook and the agent ask of Linux
    node        the root, the agent, limits and the process table
    mps         whether clients share a context, and with it their fate

A check never raises and never changes the machine. Its mending sentence says what to type or whom to ask.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel


class Status(StrEnum):
    """How a check came out; only FAIL means that sharing will not work."""

    OK = "ok"
    NOTE = "note"  # works; somebody may want to know
    FAIL = "fail"


class Check(BaseModel):
    """One thing looked at."""

    name: str
    status: Status
    reason: str
    mend: str = ""


def ok(name: str, reason: str) -> Check:
    """Return a check that came out well."""
    return Check(name=name, status=Status.OK, reason=reason)


def note(name: str, reason: str, mend: str = "") -> Check:
    """Return a check that sharing survives."""
    return Check(name=name, status=Status.NOTE, reason=reason, mend=mend)


def fail(name: str, reason: str, mend: str) -> Check:
    """Return a check that sharing does not survive."""
    return Check(name=name, status=Status.FAIL, reason=reason, mend=mend)


def examine(root: Path, simulated: bool) -> Iterator[Check]:
    """Yield every check of this machine.

    Args:
        root: where the agent is or would be.
        simulated: leave out what only a real GPU needs.
    """
    from orion.cli.checks import driver, kernel, library, mps, node

    looks: list[Callable[[], Iterator[Check]]] = [library.examine, kernel.examine, lambda: node.examine(root)]
    if not simulated:
        looks.insert(1, driver.examine)
        looks.append(mps.examine)
    for look in looks:
        yield from look()
