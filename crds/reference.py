"""Writes the tables of fields in the pages of docs/ about each kind, or checks that they are what the models say.

    python -m orion.crds.reference [--check]

Run by `make generate` and, with --check, by `make check`. A page is written by people around two marks, and what is
between them by this file: so an example stands beside the field that it shows, and no table can lag behind a model.
Fields are told by reading the models, not their schema: in a schema a bound is a sentence of CEL.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from orion.crds.bounds import Between
from orion.crds.clients import GPU_UUID_PATTERN
from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.generate import KINDS
from orion.crds.kinds import Kind
from orion.crds.metadata import NAME_PATTERN
from orion.crds.model import API_VERSION, Model
from orion.crds.quantities import Memory, Quantity
from orion.crds.rules import FIELD

FOLDER = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- reference: begin (made by `make generate`) -->", "<!-- reference: end -->"

_WORDS: dict[Any, str] = {
    bool: "`true` or `false`",
    int: "integer",
    float: "number",
    str: "text",
    Number: "number",
    Memory: "amount of memory",
    Quantity: "quantity",
    Duration: "duration",
}
_PATTERNS = {NAME_PATTERN: "name of an object", GPU_UUID_PATTERN: "UUID of a GPU"}
_SAID = re.compile(r"\b(?:(Unit|Default): (.+?)|(Required)([^.]*))\.(?=\s|$)", re.DOTALL)


@dataclass(frozen=True)
class Shape:
    """What a field holds: in words, and the model whose own table says more."""

    words: str
    model: type[Model] | None = None


@dataclass
class Reference:
    """The tables of one kind; a model that occurs twice has one."""

    kind: Kind
    lines: list[str] = field(default_factory=list)
    headings: dict[type[Model], str] = field(default_factory=dict)

    def text(self) -> str:
        """Return what is between the marks."""
        kind = self.kind
        scope = "one of a namespace" if kind.scope == "Namespaced" else "of the whole cluster"
        names = ", ".join(f"`{name}`" for name in (kind.plural, *kind.short))
        self.lines += [f"`apiVersion: {API_VERSION}`, `kind: {kind.name}`, {scope}. On the command line: {names}.", ""]
        parts = [name for name in ("spec", "status") if name in kind.model.model_fields]
        for part in parts:
            shape = shape_of(kind.model.model_fields[part])
            assert shape.model is not None
            self._table(shape.model, part)
        self._columns()
        return "\n".join(self.lines).strip()

    def _table(self, model: type[Model], path: str) -> None:
        """Write the table of a model, and then of those that it holds and that have none yet."""
        self.headings[model] = path
        self.lines += [f"### {path}", "", _plain(model.__doc__ or ""), ""]
        self.lines += ["| field | value | default | meaning |", "|---|---|---|---|"]
        below = []
        for name, info in model.model_fields.items():
            shown = info.alias or name
            shape = shape_of(info)
            if shape.model is not None and shape.model not in self.headings:
                deeper = f"{path}.{shown}{'[]' if shape.words.startswith('list') else ''}"
                self.headings[shape.model] = deeper
                below.append((shape.model, deeper))
            self.lines.append(self._row(shown, info, shape))
        rules = [_plain(rule.message.replace(FIELD, path)) for rule in model.rules]
        if rules:
            self.lines += ["", "What is refused beyond that, and in which words:", "", *(f"- {rule}" for rule in rules)]
        self.lines.append("")
        for deeper_model, deeper in below:
            self._table(deeper_model, deeper)

    def _row(self, name: str, info: FieldInfo, shape: Shape) -> str:
        meaning, unit, default = _parts(info.description or "")
        if not default and not info.is_required() and info.default not in (None, "") and shape.model is None:
            default = f"`{info.get_default(call_default_factory=True)}`".replace("`False`", "`false`")
        words = shape.words
        if shape.model is not None:
            heading = self.headings[shape.model]
            words = words.replace("object", f"[{heading}](#{_anchor(heading)})")
        words += f"; {unit}" if unit and "duration" not in unit else ""
        required = default or ("required" if info.is_required() else "")
        return f"| `{name}` | {words} | {required} | {meaning} |"

    def _columns(self) -> None:
        self.lines += [f"### Columns of `kubectl get {self.kind.plural}`", "", "| column | |", "|---|---|"]
        for column in self.kind.columns:
            wide = " With `-o wide` only." if column.wide else ""
            self.lines.append(f"| {column.name} | {_plain(column.description)}{wide} |")


# -- What a field holds ------------------------------------------------------------------------------------------------


def shape_of(info: FieldInfo) -> Shape:
    """Return what a field of a model holds."""
    return _shape(info.annotation, [*info.metadata])


def _shape(kind: Any, reported: list[Any]) -> Shape:
    """Return what a type means, given what `Annotated` and `Field` tell of it."""
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _shape(inner, [*(each for part in more for each in _flat(part)), *reported])
    if get_origin(kind) in (Union, UnionType):
        (only,) = (each for each in get_args(kind) if each is not NoneType)
        return _shape(only, reported)
    if get_origin(kind) in (list, dict):
        inner = _shape(get_args(kind)[-1], [])
        word = "list" if get_origin(kind) is list else "map"
        most = _bound(reported, "max_length")
        return Shape(f"{word} of {inner.words}" + (f", at most {most}" if most else ""), inner.model)
    if get_origin(kind) is tuple:
        return Shape(f"list of {len(get_args(kind))} integers")
    if get_origin(kind) is Literal:
        return Shape(_choice(get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return Shape(_choice([str(each) for each in kind]))
    if isinstance(kind, type) and issubclass(kind, Model):
        return Shape("object", kind)
    return Shape(_scalar(kind, reported))


def _flat(part: Any) -> list[Any]:
    return [*part.metadata] if isinstance(part, FieldInfo) else [part]


def _scalar(kind: Any, reported: list[Any]) -> str:
    between = next((each for each in reported if isinstance(each, Between)), None)
    if between is not None:
        what = between.what.removeprefix("a ").removeprefix("an ")
        return f"{what}, {between.least} to {between.most}, such as `{between.example.replace(' or ', '` or `')}`"
    words = _PATTERNS.get(str(_bound(reported, "pattern")), _WORDS[kind])
    least, most = _bound(reported, "ge"), _bound(reported, "le")
    if least is not None and most is not None:
        return f"{words}, {least} to {most}"
    if least is not None:
        return f"{words}, at least {least}" if least else words
    longest = _bound(reported, "max_length")
    return f"{words}, at most {longest} characters" if longest and words == "text" else words


def _bound(reported: list[Any], name: str) -> Any:
    return next((value for each in reported if (value := getattr(each, name, None)) is not None), None)


def _choice(values: Any) -> str:
    return ", ".join(f"`{value}`" for value in values)


# -- Descriptions ------------------------------------------------------------------------------------------------------


def _parts(description: str) -> tuple[str, str, str]:
    """Return what a description says of the meaning, the unit and the default."""
    unit = default = ""
    for said, value, required, more in _SAID.findall(description):
        if said == "Unit":
            unit = re.sub(r" such as \S+(?=,|$)", "", value).replace("'", "")
            unit = unit.removeprefix("none; ") if unit.startswith(("a ", "none; ")) else f"unit: {unit}"
        else:
            default = f"required{more}" if required else value
    return _plain(_SAID.sub("", description)), _plain(unit), _plain(default)


def _plain(text: str) -> str:
    """Return text on one line, as a cell of a table may hold it."""
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# -- Pages -------------------------------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[Path, str, str]]:
    """Yield each page's path, its text and what it ought to be.

    Raises:
        SystemExit: a page, or its place for the tables, is not there.
    """
    for kind in KINDS:
        path = FOLDER / f"{kind.singular}.md"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        head, begin, rest = text.partition(BEGIN)
        _, end, tail = rest.partition(END)
        if not (begin and end):
            raise SystemExit(f"{path} has no place for the reference of {kind.name} ({BEGIN} ... {END})")
        yield path, text, f"{head}{BEGIN}\n\n{Reference(kind).text()}\n\n{END}{tail}"


def main() -> int:
    """Write the tables, or with --check say which pages are out of date."""
    parser = argparse.ArgumentParser(prog="python -m orion.crds.reference", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is out of date")
    check = parser.parse_args().check
    stale = [(path, fresh) for path, text, fresh in pages() if text != fresh]
    if check and stale:
        print(f"out of date: {', '.join(path.name for path, _ in stale)}; run `make generate`", file=sys.stderr)
        return 1
    for path, fresh in stale:
        path.write_text(fresh, encoding="utf-8")
    print("reference of the API types: current")
    return 0


if __name__ == "__main__":
    sys.exit(main())
