"""Reads the blocks that tests on a cluster run, and compares the output of a run with the output on the page.

Such a block is fenced ```console run. A command begins with `$ `, and its output follows it. Only the form of the
output is compared: ages, numbers, hashes and UUIDs differ in every run. A line of three dots stands for any number of
lines. A run may print more lines than the page shows, because a table grows with the cluster.
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
    """A command that a page shows with its output.

    Args:
        command: for a shell, in the root of the checkout.
        output: the output on the page; empty if the page shows none.
        line: of the command, counted from 1.
    """

    command: str
    output: str
    line: int


def steps(page: Page) -> list[Step]:
    """Return the commands of a page that tests run, in the page's order."""
    return [step for block in page.blocks if RUN in block.info for step in _steps(block)]


def _steps(block: Block) -> list[Step]:
    shown = block.text.splitlines()
    starts = [number - block.line for _, number in shell.lines(block)]
    commands = [text for text, _ in shell.lines(block)]
    ends = [*starts[1:], len(shown)]
    found = []
    for command, start, end in zip(commands, starts, ends, strict=True):
        first = start + 1
        while shown[first - 1].endswith("\\"):
            first += 1
        found.append(Step(command, "\n".join(shown[first:end]).strip("\n"), block.line + start))
    return found


def differs(expected: str, got: str) -> str:
    """Return a sentence about the first line of a page that a run did not print; empty if it printed all lines."""
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
    """Return the part of a line that is the same in every run."""
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line.strip()
