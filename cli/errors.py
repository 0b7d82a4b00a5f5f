"""The commands' errors: each is one sentence that a person can act on.

Refused           the command cannot do what the user asked; exit 1, or a shell's status for errors of a program
    NoAgent       no agent answers at the root
(A wrong flag or value raises typer's exception; exit 2. `wrong_value` is for values that only the settings can check.)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class Refused(Exception):
    """The command cannot do what the user asked; the text is the sentence for the user.

    Args:
        sentence: for the user.
        status: the command's exit status.
    """

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class NoAgent(Refused):
    """No node agent answers at the root."""


def wrong_value(error: "ValidationError", flags: str = "--") -> Refused:
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
    return Refused(f"{flag if first['loc'] else field} cannot be {first['input']!r}: {why}", status=2)
