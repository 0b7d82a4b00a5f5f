"""The errors of the command line: `main` prints each as one sentence, and exits with the status of its class.

Typer reports a wrong option or value itself, with status 2. `wrong_value` is for values that only the settings check.
"""

from typing import TYPE_CHECKING

from orion.errors import Invalid, OrionError

if TYPE_CHECKING:
    from pydantic import ValidationError


class ProgramFailed(OrionError):
    """The program that the command runs does not start or does not do its part.

    Args:
        sentence: for the user.
        exit_status: the command's, as a shell gives it: 127 for a missing program, 126 for one that it cannot run.
    """

    def __init__(self, sentence: str, exit_status: int) -> None:
        super().__init__(sentence)
        self.exit_status = exit_status


def wrong_value(error: "ValidationError", flags: str = "--") -> Invalid:
    """Return the refusal of a flag's value that the settings reject.

    Args:
        error: from the settings, whose fields have the flags' names; a flag that may be repeated has an s more.
        flags: the prefix of the flags.
    """
    first = error.errors()[0]
    field = next((str(part) for part in reversed(first["loc"]) if isinstance(part, str)), "the settings")
    repeated = len(first["loc"]) > 1 and isinstance(first["loc"][-1], int)
    flag = flags + (field.removesuffix("s") if repeated else field).replace("_", "-")
    why = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    why = why.replace("String should match pattern", "it must match")
    return Invalid(f"{flag if first['loc'] else field} cannot be {first['input']!r}: {why}")
