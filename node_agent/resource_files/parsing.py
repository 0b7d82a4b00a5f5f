"""Reads the text of a resource file, in both of Gemini's forms. Pure functions: bytes in, rules or an error out.

Version 1 has the number of ids in its first line, then a line `ID REQUEST LIMIT GPU_MEM` for each. Version 2 has a
group for each id, in the syntax of desktop entries: `[ID]`, then `MinUtil = 0.1`, `MaxUtil`, `MemoryLimit = 2GiB`.

A file is valid as a whole or not at all, since one wrong number often means that others are wrong, too. The last line
must end with a newline: without one, a file that is still being written could be read with half a number at its end.

Refused: Python's configparser. It has interpolation and continued lines, which Gemini's files do not have, and it does
not say in which line a value is.
"""

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from pydantic import ValidationError

from orion.errors import Unreadable
from orion.node_agent.resource_files.rules import Rule

SIZE_MAX = 1 << 18
""" Bytes; the longest file. """
_RULES_MAX = 1_000

_PART = "a part of the GPU's time from 0.001 to 1"
_MEMORY = "bytes from 1048576 (1 MiB) to 17592186044416 (16 TiB)"
_ID = "1 to 320 printable characters of ASCII"
_WITHOUT_REQUEST = "; 0.01 is what a program without a request is sure to get"
_V1 = {
    "id": ("ID", _ID),
    "request": ("REQUEST", _PART + _WITHOUT_REQUEST),
    "limit": ("LIMIT", _PART),
    "memory_limit_bytes": ("GPU_MEM", _MEMORY),
}
_V2 = {
    "id": ("the group's name", _ID),
    "request": ("MinUtil", f"{_PART}, or leave it out: then there is no request"),
    "limit": ("MaxUtil", _PART),
    "memory_limit_bytes": ("MemoryLimit", f"{_MEMORY}, such as 2GiB"),
}
_Names = Mapping[str, tuple[str, str]]
_FIELDS = {name: field for field, (name, _) in _V2.items() if field != "id"}
_MEMORY_DEFAULT = 1 << 30
""" What a group without `MemoryLimit` gets, as in Gemini. """
_SIZE = re.compile(r"(\d{1,20})\s*(?:([KMGT])(i?))?B?")


class _Text:
    """A file's lines that are not blank, with their numbers; every error names one of them."""

    def __init__(self, data: bytes, name: str) -> None:
        self._name = name
        if not data.strip():
            self.refuse(1, "the file is empty: write the number of ids, 0 for none")
        if len(data) > SIZE_MAX:
            self.refuse(1, f"the file has more than {SIZE_MAX} bytes: it is no resource file, give another one")
        rubbish = re.search(rb"[^\t\r\n -~]", data)
        if rubbish:
            line = data.count(b"\n", 0, rubbish.start()) + 1
            self.refuse(line, f"the byte {rubbish[0].hex()} is no ASCII text: write the file again")
        lines = data.decode("ascii").split("\n")
        if lines[-1]:
            self.refuse(len(lines), "the line does not end: complete it, and end it with a newline")
        self.lines = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]

    def refuse(self, line: int, why: str) -> NoReturn:
        """Refuse the file because of a line."""
        raise Unreadable(f"{self._name}, line {line}: {why}")

    def rule(self, names: _Names, values: Mapping[str, object], lines: Mapping[str, int]) -> Rule:
        """Return a checked rule.

        Args:
            names: what the file calls each field, and what it may be.
            values: by field.
            lines: where each value is.
        """
        try:
            return Rule.model_validate({**values, "line": lines["id"]})
        except ValidationError as error:
            first = error.errors()[0]
            if not first["loc"]:
                self.refuse(lines.get("request", lines["id"]), first["msg"].removeprefix("Value error, "))
            field = str(first["loc"][0])
            name, allowed = names[field]
            self.refuse(lines[field], f"{name} cannot be {reprlib.repr(first['input'])}: write {allowed}")

    def distinct(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Return the rules; refuse those with the same id, and too many."""
        found: dict[str, Rule] = {}
        for rule in rules:
            if rule.id in found:
                self.refuse(rule.line, f"the id {rule.id} is in line {found[rule.id].line} already: remove one of them")
            found[rule.id] = rule
            if len(found) > _RULES_MAX:
                self.refuse(rule.line, f"the file has more than {_RULES_MAX} ids: remove some")
        return tuple(found.values())


def parse(data: bytes, name: str) -> tuple[Rule, ...]:
    """Return the rules of a file, in its order.

    Args:
        data: the file's content.
        name: the file's name, for the error.

    Raises:
        Unreadable: the first fault, with its line.
    """
    text = _Text(data, name)
    first = text.lines[0][1]
    return text.distinct(_version_2(text) if first[0] in "[#" else _version_1(text))


# -- Version 1 ---------------------------------------------------------------------------------------------------------


def _version_1(text: _Text) -> Iterator[Rule]:
    (first, count), *lines = text.lines
    if not re.fullmatch(r"\d{1,9}", count):
        text.refuse(first, f"{reprlib.repr(count)} is neither the number of ids (Gemini 1) nor a [group] (Gemini 2)")
    for number, line in lines:
        words = line.split()
        if len(words) != len(_V1):
            text.refuse(number, f"{len(words)} words, not 4: write ID REQUEST LIMIT GPU_MEM")
        yield text.rule(_V1, dict(zip(_V1, words, strict=True)), dict.fromkeys(_V1, number))
    if int(count) != len(lines):
        ids = f"{int(count)} id{'s' * (int(count) != 1)}"
        follow = f"{len(lines)} line follows" if len(lines) == 1 else f"{len(lines)} lines follow"
        text.refuse(first, f"it announces {ids}, and {follow}: correct the number or the lines")


# -- Version 2 ---------------------------------------------------------------------------------------------------------


@dataclass
class _Group:
    values: dict[str, object]
    lines: dict[str, int]


def _version_2(text: _Text) -> Iterator[Rule]:
    group: _Group | None = None
    for number, line in text.lines:
        if line[0] == "#":
            continue
        if line[0] == "[":
            if group:
                yield _of_group(text, group)
            group = _Group({"id": _heading(text, number, line)}, {"id": number})
            continue
        if group is None:
            text.refuse(number, "the line is before the first group: write [ID] above it")
        field, value = _setting(text, number, line)
        if field in group.values:
            text.refuse(number, f"{_V2[field][0]} is in line {group.lines[field]} already: remove one of them")
        group.values[field], group.lines[field] = value, number
    if group:
        yield _of_group(text, group)


def _heading(text: _Text, number: int, line: str) -> str:
    found = re.fullmatch(r"\[([^][]*)\]\s*(?:#.*)?", line)
    if not found:
        text.refuse(number, f"{reprlib.repr(line)} is no group: write [ID]")
    return found[1].strip()


def _setting(text: _Text, number: int, line: str) -> tuple[str, object]:
    name, equals, value = (part.strip() for part in re.sub(r"\s#.*", "", line).partition("="))
    if not equals or name not in _FIELDS:
        text.refuse(number, f"{reprlib.repr(name)} is no setting: write {', '.join(_FIELDS)} = VALUE, or [ID]")
    field = _FIELDS[name]
    return field, size(value) if field == "memory_limit_bytes" else value


def _of_group(text: _Text, group: _Group) -> Rule:
    return text.rule(_V2, {"memory_limit_bytes": _MEMORY_DEFAULT, **group.values}, group.lines)


def size(text: str) -> int | str:
    """Return an amount of memory in bytes as Gemini reads it: `2G` is decimal, `2Gi` binary. Other text stays."""
    found = _SIZE.fullmatch(text)
    if not found:
        return text
    digits, unit, binary = found.groups()
    power: int = " KMGT".index(unit or " ")
    return int(int(digits) * (1024 if binary else 1000) ** power)
