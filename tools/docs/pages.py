"""Parses a page into headings, links and code, and lists the pages.

A YAML file of examples is a page too: one block, whose comments may contain commands.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]

_OUTSIDE = {"build", "dist", "__pycache__"}
_EXPLICIT_ANCHOR = re.compile(r'<a\s+(?:id|name)="([^"]+)"')
_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Args:
        info: the words after the fence, such as ("console", "run"); empty for indented blocks and bare fences.
        text: its content.
        line: of its first line of content, from 1.
    """

    info: tuple[str, ...]
    text: str
    line: int


@dataclass(frozen=True)
class Span:
    """Text with its line: the target of a link, or code within a sentence."""

    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """A page.

    Args:
        path: from the root of the checkout.
        text: its content.
        root: of the checkout.
    """

    path: Path
    text: str
    root: Path = ROOT

    @property
    def name(self) -> str:
        """The path for messages."""
        return self.path.as_posix()

    @cached_property
    def _tokens(self) -> list[Token]:
        return _PARSER.parse(self.text) if self.path.suffix == ".md" else []

    def _inline(self) -> Iterator[tuple[Token, int]]:
        for token in self._tokens:
            if token.type == "inline":
                line = (token.map or [0])[0] + 1
                for child in token.children or ():
                    yield child, line
                    line += child.type in ("softbreak", "hardbreak")

    @cached_property
    def blocks(self) -> list[Block]:
        """Its blocks of code, fenced and indented; a file of examples is one block."""
        if self.path.suffix != ".md":
            return [Block(("yaml",), self.text, 1)]
        found = []
        for token in self._tokens:
            if token.type in ("fence", "code_block") and token.map is not None:
                fenced = token.type == "fence"
                found.append(Block(tuple(token.info.split()), token.content, token.map[0] + 1 + fenced))
        return found

    @cached_property
    def spans(self) -> list[Span]:
        """Code within sentences, with single spaces."""
        return [
            Span(" ".join(token.content.split()), line) for token, line in self._inline() if token.type == "code_inline"
        ]

    @cached_property
    def links(self) -> list[Span]:
        """Targets of links and images."""
        found = []
        for token, line in self._inline():
            target = token.attrGet("href") if token.type == "link_open" else token.attrGet("src")
            if target:
                found.append(Span(str(target), line))
        return found

    @cached_property
    def tables(self) -> list[tuple[int, int]]:
        """The first and the last line of each table, counted from 1."""
        return [(token.map[0] + 1, token.map[1]) for token in self._tokens if token.type == "table_open" and token.map]

    @cached_property
    def anchors(self) -> set[str]:
        """Valid link targets after `#`: headings as GitHub names them, and explicit anchors."""
        found: set[str] = set(_EXPLICIT_ANCHOR.findall(self.text))
        headings = [
            self._tokens[number + 1] for number, token in enumerate(self._tokens) if token.type == "heading_open"
        ]
        for heading in headings:
            words = "".join(child.content for child in heading.children or () if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            number = 0
            while (numbered := f"{slug}-{number}" if number else slug) in found:
                number += 1
            found.add(numbered)
        return found


def read(path: Path, root: Path = ROOT) -> Page:
    """Return a file as a page."""
    return Page(path.relative_to(root), path.read_text(encoding="utf-8"), root)


def all_pages(root: Path = ROOT) -> list[Page]:
    """Return every page of a checkout, and the YAML files of its examples, sorted."""
    folders = [each for each in root.iterdir() if each.is_dir() and not each.is_symlink()]
    packages = [each for each in folders if not each.name.startswith(".") and each.name not in _OUTSIDE]
    found = [*root.glob("*.md"), *(path for package in packages for path in package.rglob("*.md"))]
    found += (root / "examples").rglob("*.yaml")
    return [read(path, root) for path in sorted(found) if not _OUTSIDE & set(path.relative_to(root).parts)]
