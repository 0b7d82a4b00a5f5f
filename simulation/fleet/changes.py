"""`--what-if`: one value of a fleet's file is changed, such as `search.rate*1.5` or `gpus.atMost=40`.

The change acts on the file's fields before they are checked, so a changed file gets the same errors as a written one.
"""

import copy
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from orion.crds.durations import Duration
from orion.crds.quantities import Memory
from orion.errors import Invalid

_FORM = re.compile(r"(?P<name>.+?)(?:\.(?P<field>[A-Za-z]+))?\s*(?P<sign>[*/+=-])\s*(?P<value>[^*/+=]+)")
_LISTS = ("services", "batch", "training")
_HELP = "give NAME.FIELD*NUMBER, or / + - =, such as search.rate*1.5, tune.by=20 or gpus.atMost=40"


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
            return change(Memory(value).bytes) / 1e9
    raise Invalid(f"--what-if {expression!r}: {value!r} cannot be changed so: set it with =")
