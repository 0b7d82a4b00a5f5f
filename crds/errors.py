"""What is wrong with an object, as one sentence that names the field."""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orion.crds.rules import BROKEN_RULE, FIELD

UNKNOWN_FIELD = "unknown_field"
""" The type of pydantic's error; its context holds the member. """

_SHOWN = 80


class Unreadable(ValueError):
    """Data is not what it should be; the text is one sentence that names the field and says what is expected."""


def sentence(error: ValidationError, what: str = "") -> str:
    """Return the first thing that pydantic found wrong, for people.

    Args:
        error: what a model's validation raised.
        what: the thing that was validated, put in front; empty: nothing is.
    """
    first = error.errors(include_url=False)[0]
    path = _path(location(first))
    message = first["msg"].removeprefix("Value error, ").replace(FIELD, _path(first["loc"]))
    if first["type"] not in ("missing", "value_error", "model_type", BROKEN_RULE, UNKNOWN_FIELD):
        message += f", not {first['input']!r}"[:_SHOWN]
    said = message.startswith(path)  # rules name their fields in full
    return ": ".join(part for part in (what, "" if said else path, message) if part)


def location(error: ErrorDetails) -> tuple[str | int, ...]:
    """Return where an error is: the place of the value, or of that member of it that the error is about."""
    member = error.get("ctx", {}).get("member")
    return (*error["loc"], member) if member else error["loc"]


def _path(parts: Sequence[str | int]) -> str:
    """Return a path as the API server writes it, such as ``spec.items[0].name``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
