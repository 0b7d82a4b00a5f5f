"""Durations in the format of Kubernetes and Go: "400us", "2ms", "1m30s".

They are strings, because a number would hide its unit. The class keeps the user's text. Rejected: pydantic's timedelta,
because it writes ISO 8601 and has no nanoseconds.
"""

import re
from decimal import Decimal
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

MAX_LENGTH = 32
PATTERN = r"^([0-9]{1,9}([.][0-9]{1,9})?(ns|us|µs|ms|s|m|h)){1,6}$"

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_WHOLE = re.compile(PATTERN)


class Duration(str):
    """A length of time as text; never negative.

    Raises:
        ValueError: the text is not a duration.
    """

    __slots__ = ("nanoseconds",)

    nanoseconds: int

    def __new__(cls, text: str) -> Self:  # noqa: D102 - the class says it
        if len(text) > MAX_LENGTH or _WHOLE.fullmatch(text) is None or not text.isprintable() or text.endswith("\n"):
            raise ValueError(f"must be a duration such as 400us, 2ms or 1m30s; not {text[:MAX_LENGTH]!r}")
        made = super().__new__(cls, text)
        parts = _PART.findall(text)
        made.nanoseconds = int(sum(Decimal(number) * _NANOSECONDS[unit] for number, unit in parts))
        return made

    @classmethod
    def read(cls, value: object) -> Self:
        """Return a value from JSON as a duration.

        Raises:
            ValueError: the value is not a duration.
        """
        if not isinstance(value, str):
            raise ValueError(f"must be a duration such as 400us, 2ms or 1m30s; not {value!r}")
        return cls(value)

    @classmethod
    def of(cls, nanoseconds: int) -> Self:
        """Return nanoseconds (at least 0) as a duration, in the largest of s, ms, us and ns that does not exceed it."""
        unit = next((unit for unit in ("s", "ms", "us") if nanoseconds >= _NANOSECONDS[unit]), "ns")
        amount = Decimal(nanoseconds) / _NANOSECONDS[unit]
        return cls(f"{amount.normalize():f}{unit}")

    @property
    def exact_nanoseconds(self) -> float:
        """The nanoseconds with decimals, such as 0.4 of "0.4ns"."""
        return float(sum(Decimal(number) * _NANOSECONDS[unit] for number, unit in _PART.findall(self)))

    @property
    def value(self) -> int:
        """The nanoseconds, for comparison."""
        return self.nanoseconds

    @property
    def microseconds(self) -> int:
        """The microseconds, rounded up, so that only 0 becomes 0."""
        return -(-self.nanoseconds // 1_000)

    @staticmethod
    def cel_valid(name: str) -> str:
        """Return the CEL expression that is true if a string is a duration."""
        return f"{name}.matches('{PATTERN}')"

    @staticmethod
    def cel(name: str) -> str:
        """Return the CEL expression that parses a string as a duration."""
        return f"duration({name})"

    @property
    def cel_literal(self) -> str:
        """The CEL expression of this duration."""
        return f"duration('{self}')"

    @staticmethod
    def cel_compare(left: str, sign: str, right: str) -> str:
        """Return the CEL expression that compares two values."""
        return f"{left} {sign} {right}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "maxLength": MAX_LENGTH, "pattern": PATTERN}
