"""Writes the tables of fields in the docs/ page of each kind, or checks that the tables match the models.

    python -m orion.crds.reference [--check]

`make generate` runs it; `make check` runs it with --check. People write each page, and this file writes the text
between two marks in the page. So a page has examples beside the fields, and each table matches its model. The tables
come from the models and not from the schemas, because a schema has the bounds of durations, numbers and quantities only
in CEL expressions.
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
from orion.crds.descriptions import descriptions
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
_STATED = re.compile(r"\b(?:(Unit|Default): (.+?)|(Required)([^.]*))\.(?=\s|$)", re.DOTALL)


@dataclass(frozen=True)
class Shape:
    """The type of a field in words. If the type is a model, or a list or map of one, also that model."""

    words: str
    model: type[Model] | None = None


@dataclass
class Reference:
    """The tables of one kind. A model that several fields use has one table."""

    kind: Kind
    lines: list[str] = field(default_factory=list)
    headings: dict[type[Model], str] = field(default_factory=dict)

    def text(self) -> str:
        """Return the text between the marks."""
        kind = self.kind
        scope = "namespaced" if kind.scope == "Namespaced" else "cluster-scoped"
        names = ", ".join(f"`{name}`" for name in (kind.plural, *kind.short))
        self.lines += [f"`apiVersion: {API_VERSION}`, `kind: {kind.name}`, {scope}. Names for kubectl: {names}.", ""]
        parts = [name for name in ("spec", "status") if name in kind.model.model_fields]
        for part in parts:
            shape = shape_of(kind.model.model_fields[part])
            assert shape.model is not None
            self._table(shape.model, part)
        self._columns()
        return "\n".join(self.lines).strip()

    def _table(self, model: type[Model], path: str) -> None:
        """Write the table of a model, then a table for each model that its fields use and that has none yet."""
        self.headings[model] = path
        self.lines += [f"### {path}", "", _plain(model.__doc__ or ""), ""]
        self.lines += ["| field | value | default | meaning |", "|---|---|---|---|"]
        below = []
        texts = descriptions(model)
        for name, info in model.model_fields.items():
            shown = info.alias or name
            shape = shape_of(info)
            if shape.model is not None and shape.model not in self.headings:
                deeper = f"{path}.{shown}{'[]' if shape.words.startswith('list') else ''}"
                self.headings[shape.model] = deeper
                below.append((shape.model, deeper))
            self.lines.append(self._row(shown, info, shape, texts.get(name, "")))
        rules = [_plain(rule.message.replace(FIELD, path)) for rule in model.rules]
        if rules:
            self.lines += [
                "",
                "The API server also rejects an object that breaks a rule. The error messages are:",
                "",
                *(f"- {rule}" for rule in rules),
            ]
        self.lines.append("")
        for deeper_model, deeper in below:
            self._table(deeper_model, deeper)

    def _row(self, name: str, info: FieldInfo, shape: Shape, text: str) -> str:
        meaning, unit, default = _parts(text)
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


# -- Types of fields ---------------------------------------------------------------------------------------------------


def shape_of(info: FieldInfo) -> Shape:
    """Return the type of a model's field."""
    return _shape(info.annotation, [*info.metadata])


def _shape(kind: Any, metadata: list[Any]) -> Shape:
    """Return the shape of a type; `metadata` is the metadata of `Annotated` and `Field`."""
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _shape(inner, [*(each for part in more for each in _flat(part)), *metadata])
    if get_origin(kind) in (Union, UnionType):
        (only,) = (each for each in get_args(kind) if each is not NoneType)
        return _shape(only, metadata)
    if get_origin(kind) in (list, dict):
        inner = _shape(get_args(kind)[-1], [])
        word = "list" if get_origin(kind) is list else "map"
        most = _bound(metadata, "max_length")
        return Shape(f"{word} of {inner.words}" + (f", at most {most}" if most else ""), inner.model)
    if get_origin(kind) is tuple:
        return Shape(f"list of {len(get_args(kind))} integers")
    if get_origin(kind) is Literal:
        return Shape(_choice(get_args(kind)))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return Shape(_choice([str(each) for each in kind]))
    if isinstance(kind, type) and issubclass(kind, Model):
        return Shape("object", kind)
    return Shape(_scalar(kind, metadata))


def _flat(part: Any) -> list[Any]:
    return [*part.metadata] if isinstance(part, FieldInfo) else [part]


def _scalar(kind: Any, metadata: list[Any]) -> str:
    between = next((each for each in metadata if isinstance(each, Between)), None)
    if between is not None:
        what = between.what.removeprefix("a ").removeprefix("an ")
        return f"{what}, {between.least} to {between.most}, such as `{between.example.replace(' or ', '` or `')}`"
    words = _PATTERNS.get(str(_bound(metadata, "pattern")), _WORDS[kind])
    least, most = _bound(metadata, "ge"), _bound(metadata, "le")
    if least is not None and most is not None:
        return f"{words}, {least} to {most}"
    if least is not None:
        return f"{words}, at least {least}" if least else words
    longest = _bound(metadata, "max_length")
    return f"{words}, at most {longest} characters" if longest and words == "text" else words


def _bound(metadata: list[Any], name: str) -> Any:
    return next((value for each in metadata if (value := getattr(each, name, None)) is not None), None)


def _choice(values: Any) -> str:
    return ", ".join(f"`{value}`" for value in values)


# -- Descriptions ------------------------------------------------------------------------------------------------------


def _parts(description: str) -> tuple[str, str, str]:
    """Return the meaning, the unit and the default in a description."""
    unit = default = ""
    for word, value, required, more in _STATED.findall(description):
        if word == "Unit":
            unit = re.sub(r" such as \S+(?=,|$)", "", value).replace("'", "")
            unit = unit.removeprefix("none; ") if unit.startswith(("a ", "none; ")) else f"unit: {unit}"
        else:
            default = f"required{more}" if required else value
    return _plain(_STATED.sub("", description)), _plain(unit), _plain(default)


def _plain(text: str) -> str:
    """Return text on one line, escaped for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


# -- Pages -------------------------------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[Path, str, str]]:
    """Yield each page's path, its present text and its correct text.

    Raises:
        SystemExit: a page, or the marks in it, do not exist.
    """
    for kind in KINDS:
        path = FOLDER / f"{kind.singular}.md"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        head, begin, rest = text.partition(BEGIN)
        _, end, tail = rest.partition(END)
        if not (begin and end):
            raise SystemExit(f"{path} has no place for the reference of {kind.name}; add the lines {BEGIN} and {END}")
        yield path, text, f"{head}{BEGIN}\n\n{Reference(kind).text()}\n\n{END}{tail}"


def main() -> int:
    """Write the tables; with --check, list the pages that are out of date."""
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
