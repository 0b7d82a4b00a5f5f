"""Adds options to a command that several commands share, or that come from a table."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Command = Callable[..., None]


class Defaulting(NamedTuple):
    """An option that has a value when the user does not give it."""

    annotation: Any
    default: Any


def adds(parameter: str, options: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Return a decorator that replaces a command's parameter by options.

    The command gets in the parameter those that the user gave and those with a default, by name.

    Args:
        parameter: the parameter's name.
        options: the annotation of each, by name, or a `Defaulting`; an option without a default that is not given is
            None.
    """
    all_options = {
        name: each if isinstance(each, Defaulting) else Defaulting(each, None) for name, each in options.items()
    }

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {name: given.pop(name) for name in options}
            command(**given, **{parameter: {name: value for name, value in values.items() if value is not None}})

        keyword = inspect.Parameter.KEYWORD_ONLY
        own = [each.replace(kind=keyword) for each in inspect.signature(command).parameters.values()]
        made = [
            inspect.Parameter(name, keyword, default=each.default, annotation=each.annotation)
            for name, each in all_options.items()
        ]
        place = [each.name for each in own].index(parameter)
        parameters = [*own[:place], *made, *own[place + 1 :]]
        setattr(run, "__signature__", inspect.Signature(parameters))  # noqa: B010  (mypy knows no such attribute)
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
