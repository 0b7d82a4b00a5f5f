"""Numbers of the API that may have a fraction: factors and shares, such as 1.3 of a slowdown and 0.5 of a GPU.

They are `type: number`, so users write them without quotes: `maxSlowdown: 1.3`. Kubernetes' API conventions advise
against floating-point numbers in a spec, because their last binary digit may differ between readers. That digit does
not matter here: all code first rounds such a number to a thousandth, the unit of the shared pages (`milli`).

Rejected alternatives:
  * quantities ("1.3", 500m): the API server would reject a value without quotes, with a message about types;
  * whole percentages: each field's name would have to contain the unit, and 99.9 % and 0.1 % could not be written.
"""

import math
from typing import Any, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class Number(float):
    """A number in steps of a thousandth."""

    __slots__ = ()

    @classmethod
    def read(cls, value: object) -> Self:
        """Return a value from JSON as a number.

        Raises:
            ValueError: the value is not a finite number, or is a number in quotes.
        """
        if isinstance(value, str):
            raise ValueError(f"must be a number without quotes, such as 1.3; not {value[:32]!r}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"must be a number such as 1.3; not {value!r}")
        return cls(value)

    @classmethod
    def of_milli(cls, thousandths: int) -> Self:
        """Return a number, given in thousandths."""
        return cls(thousandths / 1000)

    @property
    def milli(self) -> int:
        """The number in thousandths, rounded to the nearest."""
        return round(self * 1000)

    @property
    def value(self) -> float:
        """The unrounded number, for comparison with bounds: the API server compares the same."""
        return float(self)

    @property
    def plain(self) -> int | float:
        """The number for JSON: 2 rather than 2.0."""
        return int(self) if self.is_integer() else float(self)

    def __str__(self) -> str:
        return repr(self.plain)

    @staticmethod
    def cel_valid(name: str) -> str:
        """Return an empty expression, because the schema's type already guarantees a well-formed number."""
        return ""

    @staticmethod
    def cel(name: str) -> str:
        """Return the CEL expression that yields a field's value for comparison."""
        return name

    @property
    def cel_literal(self) -> str:
        """The CEL expression of this number."""
        return repr(float(self))

    @staticmethod
    def cel_compare(left: str, sign: str, right: str) -> str:
        """Return the CEL expression that compares two values."""
        return f"{left} {sign} {right}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        plain = core_schema.plain_serializer_function_ser_schema(lambda number: number.plain)
        return core_schema.no_info_plain_validator_function(cls.read, serialization=plain)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "number"}
