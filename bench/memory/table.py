"""The rows of the table of `orion bench memory`."""

from typing import NamedTuple


class Row(NamedTuple):
    """One figure."""

    figure: str
    text: str
    target: float | None = None
    value: float = 0.0
    at_least: bool = False

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None: there is none."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target
