"""The options for how a GPU is shared, made from `hook/policy_table.py` for each command that takes them.

An option that is not given is None and changes nothing. `orion agent` and a running agent check the values again.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from orion.hook.policy_table import RELEASE, Row

PolicyName = StrEnum("PolicyName", {name.upper(): name for name in RELEASE.names})  # type: ignore[misc]
DEFAULT_POLICY = PolicyName(RELEASE.names[0])
ROWS = RELEASE.rows
BY_HP = tuple(row for row in ROWS if row.by_hp)
""" The fields that `orion run --priority hp` can set. """

_CHANGES = "changes"


def takes_policy(rows: Iterable[Row]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces a command's parameter `changes` by --policy and the rows' options.

    The command gets in `changes` the options that the user gave, by name.
    """
    options = {"policy": Annotated[PolicyName | None, _policy_option()]}
    options |= {row.name: Annotated[row.kind | None, _option(row)] for row in rows}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in options}
            plain = {name: str(value) if name == "policy" else value for name, value in values.items()}
            command(**given, changes={name: plain[name] for name, value in values.items() if value is not None})

        keyword = inspect.Parameter.KEYWORD_ONLY
        own = [each.replace(kind=keyword) for each in inspect.signature(command).parameters.values()]
        made = [inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in options.items()]
        place = [each.name for each in own].index(_CHANGES)
        parameters = [*own[:place], *made, *own[place + 1 :]]
        setattr(run, "__signature__", inspect.Signature(parameters))  # noqa: B010  (mypy knows no such attribute)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def _policy_option() -> Any:
    words = " ".join(f"{each.name}: {each.sentence}." for each in RELEASE.policies)
    return typer.Option(help=f"{words} Initial value: {RELEASE.names[0]}.", show_default=False)


def _option(row: Row) -> Any:
    unit = f" In {row.unit.suffix.removeprefix('_')}." if row.unit.is_time else ""
    meaning = f" ({row.default_is})" if row.default_is else ""
    sentence = f"{row.sentence}{unit} Initial value: {row.default:g}{meaning}."
    return typer.Option(min=row.kind(row.least), max=row.kind(row.most), help=sentence, show_default=False)
