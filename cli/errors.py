"""How a command says no: one sentence that a person can act on.

Refused           the command cannot do what was asked; exit 1, or as a shell where it is about a program
    NoAgent       nobody answers at the root
(a wrong flag or value is typer's exception; exit 2)
"""


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
