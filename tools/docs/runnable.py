"""Blocks that a test on a cluster runs: fenced ```console run, each `$ ` line a command, and under it what it printed.

Only the form of the output is compared: ages, numbers, hashes and UUIDs are of the day on which it was written. A line
of three dots stands for any number of lines; lines that a run prints beyond those of the page are allowed, for a table
grows with the cluster.
"""

import re
from dataclasses import dataclass

from tools.docs import shell
from tools.docs.pages import Block, Page

RUN = "run"
ANYTHING = "..."

_VARYING = (
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2}\b"), "DAY"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"-[0-9a-f]{8,10}-[a-z0-9]{5}\b"), "-HASH"),
    (re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "-HASH"),
    (re.compile(r"\b\d+(\.\d+)*([a-z]+\d*)*\b"), "N"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True)
class Step:
    """A command that a page shows as run.

    Args:
        command: for a shell, in the root of the checkout.
        output: what the page says it prints; empty: nothing is said.
        line: of the command, from 1.
    """

    command: str
    output: str
    line: int


def steps(page: Page) -> list[Step]:
    """Return the commands of a page that are to be run, in the page's order."""
    return [step for block in page.blocks if RUN in block.info for step in _steps(block)]


def _steps(block: Block) -> list[Step]:
    said = block.text.splitlines()
    starts = [number - block.line for _, number in shell.lines(block)]
    commands = [text for text, _ in shell.lines(block)]
    ends = [*starts[1:], len(said)]
    found = []
    for command, start, end in zip(commands, starts, ends, strict=True):
        first = start + 1
        while said[first - 1].endswith("\\"):
            first += 1
        found.append(Step(command, "\n".join(said[first:end]).strip("\n"), block.line + start))
    return found


def differs(expected: str, got: str) -> str:
    """Return which line of a page a run did not print, as a sentence; empty where all are there, in order."""
    printed = [_form(line) for line in got.splitlines()]
    for line in expected.splitlines():
        wanted = _form(line)
        if not wanted or wanted == ANYTHING:
            continue
        if wanted not in printed:
            return f"no line is like {line.strip()!r}"
        printed = printed[printed.index(wanted) + 1 :]
    return ""


def _form(line: str) -> str:
    """Return what of a line is the same on every day."""
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line.strip()
