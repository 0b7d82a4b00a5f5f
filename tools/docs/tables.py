"""Checks that rows of tables have as many cells as the head: renderers drop surplus cells silently."""

import re
from collections.abc import Iterator, Sequence

from tools.docs.findings import Finding
from tools.docs.pages import Page

_BAR = re.compile(r"(?<!\\)\|")


def check(pages: Sequence[Page]) -> list[Finding]:
    """Return the rows that do not match their table's head."""
    return [Finding(page.name, line, sentence) for page in pages for line, sentence in _faults(page)]


def _faults(page: Page) -> Iterator[tuple[int, str]]:
    lines = page.text.splitlines()
    for first, end in page.tables:
        head = _cells(lines[first - 1])
        for number in range(first + 2, end + 1):
            if (cells := _cells(lines[number - 1])) != head:
                yield number, f"this row has {cells} cells, and the table's head {head}; write a literal bar as \\|"


def _cells(row: str) -> int:
    return len(_BAR.findall(row.strip().removeprefix("|").removesuffix("|"))) + 1
