"""`--what-if`: one value of a fleet's file is changed, such as `search.rate*1.5` or `gpus.atMost=40`.

The change acts on the file's fields before they are checked. So a changed fleet gets the same errors as a written one,
with the change in place of the file.
"""

import copy
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from orion.crds.durations import Duration
from orion.errors import Invalid, Unreadable
from orion.planning.fleet.fleets import Fleet
from orion.simulation.written import gigabytes

from . import files

_FORM = re.compile(r"(?P<name>.+?)(?:\.(?P<field>[A-Za-z]+))?\s*(?P<sign>[*/+=-])\s*(?P<value>[^*/+=]+)")
_LISTS = ("services", "batch", "training")
_HELP = "give NAME.FIELD*NUMBER, or / + - =, such as search.rate*1.5, tune.by=20 or gpus.atMost=40"


def read(path: Path, fields: dict[str, Any], expressions: Sequence[str]) -> tuple[Fleet, files.File]:
    """Return the fleet of a file's fields with all changes.

    Args:
        path: the file.
        fields: as `files.parse` returns them; without changes they are a fleet.
        expressions: the changes.

    Raises:
        Invalid: an expression is none, or its value is refused; names the expression.
    """
    after = changed(fields, expressions)
    try:
        return files.read(path, after)
    except Unreadable as error:
        reason, wrong = str(error).removeprefix(f"{path}: "), ", ".join(expressions)
        for expression in expressions:
            if alone := _refused(path, changed(fields, [expression])):
                reason, wrong = alone, expression
                break
        raise Invalid(f"--what-if {wrong!r}: {reason}") from error


def _refused(path: Path, fields: dict[str, Any]) -> str:
    """Return why fields are no fleet; empty: they are one."""
    try:
        files.read(path, fields)
    except Unreadable as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def changed(fields: dict[str, Any], expressions: Sequence[str]) -> dict[str, Any]:
    """Return a fleet's fields with all changes.

    Raises:
        Invalid: an expression is none, or names what the fleet does not have.
    """
    fields = copy.deepcopy(fields)
    for expression in expressions:
        _change(fields, expression)
    return fields


def _change(fields: dict[str, Any], expression: str) -> None:
    match = _FORM.fullmatch(expression.strip())
    if match is None:
        raise Invalid(f"--what-if {expression!r} is no change: {_HELP}")
    owner, name = _owner(fields, expression, match["name"].strip(), match["field"])
    try:
        number = float(match["value"])
    except ValueError:
        number = math.nan
    if match["sign"] == "=":
        value = _written(match["value"].strip())
        owner[name] = [[0, value]] if name == "rate" else value
        return
    if not math.isfinite(number) or (match["sign"] == "/" and number == 0):
        raise Invalid(f"--what-if {expression!r} needs a number after {match['sign']}: {_HELP}")
    if name not in owner or owner[name] is None:
        raise Invalid(f"--what-if {expression!r}: the file does not give {name}: set it with {name}=VALUE")
    change: Callable[[float], float] = {
        "*": lambda value: value * number,
        "/": lambda value: value / number,
        "+": lambda value: value + number,
        "-": lambda value: value - number,
    }[match["sign"]]
    owner[name] = _applied(owner[name], change, expression, is_factor=match["sign"] in "*/")


def _owner(fields: dict[str, Any], expression: str, name: str, field: str | None) -> tuple[dict[str, Any], str]:
    """Return the part of the fleet that holds the field, and the field's name."""
    if field is None:
        if name not in ("hours", "seed"):
            raise Invalid(f"--what-if {expression!r} names no field: {_HELP}")
        return fields, name
    if name in ("gpus", "sharing"):
        part = fields.setdefault(name, {})
        if isinstance(part, dict):
            return part, field
    there = [each for key in _LISTS for each in fields.get(key) or [] if isinstance(each, dict)]
    for each in there:
        if each.get("name") == name:
            return each, field
    names = ", ".join(str(each.get("name")) for each in there)
    raise Invalid(f"--what-if {expression!r}: the fleet has no {name!r}; it has {names or 'nothing'}, gpus and sharing")


def _written(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _applied(value: Any, change: Callable[[float], float], expression: str, *, is_factor: bool) -> Any:
    if isinstance(value, list):
        if value and all(isinstance(each, list) and len(each) == 2 for each in value):
            return [[hour, _applied(rate, change, expression, is_factor=is_factor)] for hour, rate in value]
        return [_applied(each, change, expression, is_factor=is_factor) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = change(value)
        return round(found) if isinstance(value, int) and float(found).is_integer() else found
    if isinstance(value, str) and is_factor:
        with suppress(ValueError):
            return str(Duration.of(round(change(Duration(value).nanoseconds))))
        with suppress(ValueError):
            return change(gigabytes(value))
    raise Invalid(f"--what-if {expression!r}: {value!r} cannot be changed so: set it with =")
