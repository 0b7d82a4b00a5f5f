"""Units of durations in profile files. They have their own module, so that the command line imports only this one."""

from enum import StrEnum


class Unit(StrEnum):
    """A unit of time."""

    NS = "ns"
    US = "us"
    MS = "ms"

    @property
    def nanoseconds(self) -> float:
        """The nanoseconds in one unit."""
        return {"ns": 1.0, "us": 1e3, "ms": 1e6}[self.value]
