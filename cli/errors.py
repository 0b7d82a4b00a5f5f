"""The errors of the command line: `commands` prints each as one sentence, and exits with the status of its class.

Typer itself reports a wrong option or value, with status 2. `validated` reports values that Typer accepts and the
settings reject.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orion.errors import Invalid, OrionError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Settings = TypeVar("Settings", bound="BaseModel")


class ProgramFailed(OrionError):
    """The program that the command runs does not start, or does not do what the command needs, such as use the GPU.

    Args:
        sentence: for the user.
        exit_status: the command's, as a shell gives it: 127 for a missing program, 126 for one that it cannot run.
    """

    def __init__(self, sentence: str, exit_status: int) -> None:
        super().__init__(sentence)
        self.exit_status = exit_status


def existing_kubeconfig(path: Path | None) -> None:
    """Refuse a `--kubeconfig` that names no file.

    Raises:
        Invalid: there is no such file.
    """
    if path is not None and not path.is_file():
        raise Invalid(f"--kubeconfig: there is no file {path}; give the path of a kubeconfig")


def validated(settings: type[Settings], values: Mapping[str, object], flags: str = "--") -> Settings:
    """Return settings with the values of flags.

    Args:
        settings: its fields have the flags' names; the field of a repeatable flag has an s at its end.
        values: values by field.
        flags: the prefix of the flags.

    Raises:
        Invalid: the settings reject a value.
    """
    from pydantic import ValidationError

    try:
        return settings.model_validate(values)
    except ValidationError as error:
        raise _wrong_value(error, flags) from error


def _wrong_value(error: "ValidationError", flags: str) -> Invalid:
    first = error.errors()[0]
    field = next((str(part) for part in reversed(first["loc"]) if isinstance(part, str)), "")
    repeated = len(first["loc"]) > 1 and isinstance(first["loc"][-1], int)
    flag = flags + (field.removesuffix("s") if repeated else field).replace("_", "-")
    why = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    why = why.replace("String should match pattern", "it must match")
    return Invalid(f"{flag} cannot be {first['input']!r}: {why}" if field else why)
