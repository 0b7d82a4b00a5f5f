"""How a command says no: one sentence that a person can act on.

Refused           the command cannot do what was asked; exit 1, or as a shell where it is about a program
    NoAgent       nobody answers at the root
(a wrong flag or value is typer's exception; exit 2. One that only the settings can judge: `wrong_value`)
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class Refused(Exception):
    """What was asked for cannot be done here; the text is the sentence that the user reads.

    Args:
        sentence: for the user.
        status: that the command ends with.
    """

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class NoAgent(Refused):
    """No node agent answers at the root."""


def wrong_value(error: "ValidationError", flags: str = "--") -> Refused:
    """Return what to say of a flag whose value the settings do not take.

    Args:
        error: of the settings, whose fields are called as the flags are; of a flag that may be repeated, with an s.
        flags: how the flags begin.
    """
    first = error.errors()[0]
    field = next((str(part) for part in reversed(first["loc"]) if isinstance(part, str)), "the settings")
    repeated = len(first["loc"]) > 1 and isinstance(first["loc"][-1], int)
    flag = flags + (field.removesuffix("s") if repeated else field).replace("_", "-")
    why = first["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    why = why.replace("String should match pattern", "it must match")
    return Refused(f"{flag if first['loc'] else field} cannot be {first['input']!r}: {why}", status=2)
