"""The checks of `orion doctor`, one file per subject.

    library     the hook exists, and this machine's libc loads it
    driver      the NVIDIA driver and its GPUs
    kernel      what the hook and the agent need from Linux
    node        the root, the agents, limits and the process table
    mps         whether clients share a context, so that a fault ends all of them

A check never raises and never changes the machine. Its fix says what to type or whom to ask.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel


class Status(StrEnum):
    """The result of a check; only FAIL means that sharing will not work."""

    OK = "ok"
    NOTE = "note"  # sharing works, but the user should know
    FAIL = "fail"


class Check(BaseModel):
    """One check and its result."""

    name: str
    status: Status
    reason: str
    fix: str = ""


def ok(name: str, reason: str) -> Check:
    """Return a check without a problem."""
    return Check(name=name, status=Status.OK, reason=reason)


def note(name: str, reason: str, fix: str = "") -> Check:
    """Return a check with a remark; sharing works."""
    return Check(name=name, status=Status.NOTE, reason=reason, fix=fix)


def fail(name: str, reason: str, fix: str) -> Check:
    """Return a check that found why sharing cannot work."""
    return Check(name=name, status=Status.FAIL, reason=reason, fix=fix)


def examine(root: Path, simulated: bool) -> Iterator[Check]:
    """Yield every check of this machine.

    Args:
        root: where the agent is or would be.
        simulated: leave out the checks for a real GPU.
    """
    from orion.cli.checks import driver, kernel, library, mps, node

    subjects: list[Callable[[], Iterator[Check]]] = [library.examine, kernel.examine, lambda: node.examine(root)]
    if not simulated:
        subjects.insert(1, driver.examine)
        subjects.append(mps.examine)
    for examine_subject in subjects:
        yield from examine_subject()
