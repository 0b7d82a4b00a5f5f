"""Turns pydantic's validation errors into one sentence that names the field."""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orion.crds.rules import BROKEN_RULE, FIELD

UNKNOWN_FIELD = "unknown_field"
""" The type of the pydantic error for an unknown field; the error's context contains the member. """

_SHOWN = 80


def sentence(error: ValidationError, what: str = "") -> str:
    """Return the first error that pydantic found, as a sentence for people.

    Args:
        error: raised by a model's validation.
        what: the name of the validated thing, with which the sentence begins; empty: no name.
    """
    first = error.errors(include_url=False)[0]
    path = _path(location(first))
    message = first["msg"].removeprefix("Value error, ").replace(FIELD, _path(first["loc"]))
    if first["type"] not in ("missing", "value_error", "model_type", BROKEN_RULE, UNKNOWN_FIELD):
        message += f", not {first['input']!r}"[:_SHOWN]
    names_path = first["type"] == BROKEN_RULE  # a rule's message contains the path of the field
    return ": ".join(part for part in (what, "" if names_path else path, message) if part)


def location(error: ErrorDetails) -> tuple[str | int, ...]:
    """Return the path of the value that is wrong. If the error names a member of the value, the path ends there."""
    member = error.get("ctx", {}).get("member")
    return (*error["loc"], member) if member else error["loc"]


def _path(parts: Sequence[str | int]) -> str:
    """Return a path in the API server's format, such as ``spec.items[0].name``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
