"""What the durations of Orion's profile files are in; apart, for the command line names it first."""

from enum import StrEnum


class Unit(StrEnum):
    """A unit of time."""

    NS = "ns"
    US = "us"
    MS = "ms"

    @property
    def nanoseconds(self) -> float:
        """Nanoseconds in one."""
        return {"ns": 1.0, "us": 1e3, "ms": 1e6}[self.value]
