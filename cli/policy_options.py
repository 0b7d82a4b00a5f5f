"""The options for how a GPU is shared, made from `hook/policy_table.py` for each command that takes them.

An option that is not given is None and changes nothing. `orion agent` and a running agent check the values again.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from orion.cli.added_options import adds
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
    options: dict[str, Any] = {"policy": Annotated[PolicyName | None, _policy_option()]}
    options |= {row.name: Annotated[row.kind | None, _option(row)] for row in rows}
    return adds(_CHANGES, options)


def _policy_option() -> Any:
    words = " ".join(f"{each.name}: {each.sentence}." for each in RELEASE.policies)
    return typer.Option(help=f"{words} Initial value: {RELEASE.names[0]}.", show_default=False)


def _option(row: Row) -> Any:
    unit = f" In {row.unit.suffix.removeprefix('_')}." if row.unit.is_time else ""
    meaning = f" ({row.default_is})" if row.default_is else ""
    sentence = f"{row.sentence}{unit} Initial value: {row.default:g}{meaning}."
    return typer.Option(min=row.kind(row.least), max=row.kind(row.most), help=sentence, show_default=False)
