"""Extracts the commands from a block of text, for as much of the shell's syntax as pages use.

In a block with lines that begin with `$ `, these lines are commands and the others are output. In any other block, a
line is a command if its first word is the name of a known program.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tools.docs.pages import Block

PROGRAMS = ("orion", "kubectl", "helm", "make", "python", "python3", ".venv/bin/python", "pytest")
_BEFORE = ("sudo", "exec", "time", "watch", "then", "do")
_SIGNS = frozenset("();<>|&")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_COMMENT = re.compile(r"(?:^|\s)#(?:\s.*)?$")


@dataclass(frozen=True)
class Command:
    """A command: its words from the program's name on, and its line; `whole` is False for a mention in a sentence."""

    words: tuple[str, ...]
    line: int
    whole: bool = True


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a block."""
    for text, line in lines(block):
        yield from split(text, line)


def lines(block: Block) -> Iterator[tuple[str, int]]:
    """Yield the lines of a block that are commands; a continued line counts as one."""
    found = block.text.splitlines()
    prompted = any(line.startswith("$ ") for line in found)
    number = 0
    while number < len(found):
        first, text = number, found[number]
        number += 1
        if prompted and not text.startswith("$ "):
            continue
        while text.endswith("\\") and number < len(found):
            text = f"{text[:-1]} {found[number].strip()}"
            number += 1
        text = text.removeprefix("$ ").strip()
        if block.info[:1] == ("yaml",):
            if not text.startswith("#"):
                continue
            text = text.lstrip("# ")
        if prompted or starts_with_program(text):
            yield text, block.line + first


def starts_with_program(text: str) -> bool:
    """Return whether the first word, after assignments to variables, is a known program."""
    rest = [word for word in text.split() if not _ASSIGNMENT.match(word) and word not in _BEFORE]
    return bool(rest) and rest[0] in PROGRAMS


def split(text: str, line: int, whole: bool = True) -> Iterator[Command]:
    """Yield the commands of one line: split at `|`, `&&`, `;`, `$( )` and ` -- `, which a command may follow.

    Raises:
        ValueError: a quote is not closed.
    """
    lexer = shlex.shlex(_COMMENT.sub("", text), posix=True, punctuation_chars="".join(_SIGNS))
    lexer.commenters, lexer.whitespace_split = "", True
    words: list[str] = []
    skip = False
    for word in [*lexer, ";"]:
        if word and set(word) <= _SIGNS:
            skip = word.strip("&") in (">", ">>", "<")
            if not skip:
                yield from _plain(words, line, whole)
                words = []
        elif skip:
            skip = False
        else:
            words.append(word)


def _plain(words: list[str], line: int, whole: bool) -> Iterator[Command]:
    while words and (words[0] in _BEFORE or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    words = [word.strip("[]") for word in words if word not in ("...", "$")]  # drop marks of optional and omitted parts
    if not words or words[0] not in PROGRAMS:
        return
    yield Command(tuple(words), line, whole)
    if "--" in words:
        yield from _plain(words[words.index("--") + 1 :], line, whole)
