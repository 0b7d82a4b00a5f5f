"""Amounts with a unit, in Kubernetes' format: "8Gi" of memory, "500m" of a CPU; for memory also "8GiB".

A quantity is exact to a billionth: the API server rounds what is finer up, too. It compares quantities in CEL. Factors
and shares have no unit and are numbers (decimals.py).
"""

import re
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal
from typing import Any, ClassVar, Self

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

MAX_LENGTH = 32
PATTERN = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]{1,2})?$"

_WHOLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([eE][+-]?[0-9]{1,2})|([KMGTPE]i|[numkMGTPE]))?")
_UNITS: dict[str, Decimal] = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_UNITS |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)}
_UNITS |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_EXACT = Context(prec=128)  # more digits than MAX_LENGTH characters with a unit can have
_FINEST = Decimal("1e-9")
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


class Quantity(str):
    """An amount as text.

    Raises:
        ValueError: the text is not a quantity.
    """

    __slots__ = ("value",)

    value: Decimal
    """ The amount in the base unit, rounded to a billionth, away from 0. """

    must: ClassVar = "must be a quantity such as 8Gi or 500m"
    """ The beginning of the error sentence. """

    def __new__(cls, text: str) -> Self:  # noqa: D102 - the class says it
        match = _WHOLE.fullmatch(cls.unit_of_kubernetes(text)) if len(text) <= MAX_LENGTH else None
        if match is None:
            raise ValueError(f"{cls.must}; not {text[:MAX_LENGTH]!r}")
        made = super().__new__(cls, text)
        number, exponent, unit = match.groups()
        exact = _EXACT.multiply(Decimal(number + (exponent or "")), _UNITS.get(unit, Decimal(1)))
        made.value = max(exact, exact.quantize(_FINEST, ROUND_UP, _EXACT), key=Decimal.copy_abs)
        return made

    @classmethod
    def read(cls, value: object) -> Self:
        """Return a value from JSON as a quantity: text, or a whole number.

        Raises:
            ValueError: the value is not a quantity.
        """
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(f"{cls.must}; not {value!r}")
        return cls(str(value))

    @staticmethod
    def unit_of_kubernetes(text: str) -> str:
        """Return an amount with its unit in Kubernetes' format."""
        return text

    @classmethod
    def of_bytes(cls, amount: int) -> Self:
        """Return a number of bytes in the largest binary unit that gives a whole number."""
        for power, unit in zip(range(6, 0, -1), _BINARY, strict=True):
            if amount and amount % 1024**power == 0:
                return cls(f"{amount // 1024**power}{unit}")
        return cls(str(amount))

    @property
    def bytes(self) -> int:
        """The amount as a whole number, rounded up as Kubernetes does."""
        return int(self.value.to_integral_value(ROUND_CEILING))

    @staticmethod
    def cel_valid(name: str) -> str:
        """Return the CEL expression that is true if a string or integer is a quantity."""
        return f"isQuantity(string({name}))"

    @staticmethod
    def cel(name: str) -> str:
        """Return the CEL expression that parses a string or an integer as a quantity."""
        return f"quantity(string({name}))"

    @property
    def cel_literal(self) -> str:
        """The CEL expression of this quantity."""
        return f"quantity('{self}')"

    @staticmethod
    def cel_compare(left: str, sign: str, right: str) -> str:
        """Return the CEL expression that compares two values."""
        return f"{left}.compareTo({right}) {sign} 0"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        either: list[dict[str, str]] = [{"type": "integer"}, {"type": "string"}]
        return {"anyOf": either, "x-kubernetes-int-or-string": True, "maxLength": MAX_LENGTH, "pattern": PATTERN}


class Memory(Quantity):
    """An amount of memory as text: a quantity, optionally with a B at its end. 8GiB is 8Gi, 8GB is 8G.

    The command line and the API both parse memory with this class, so the same text means the same in both.

    Raises:
        ValueError: the text is not an amount of memory.
    """

    __slots__ = ()

    must: ClassVar = "must be an amount of memory such as 8Gi, 8GiB, 4GB or a number of bytes"

    @staticmethod
    def unit_of_kubernetes(text: str) -> str:
        """Return an amount without the B at its end."""
        return text.removesuffix("B")

    @staticmethod
    def cel_valid(name: str) -> str:
        """Return the CEL expression that is true if a string or integer is an amount of memory."""
        return f"string({name}).matches('^[^B]+B?$') && isQuantity({Memory._without_b(name)})"

    @staticmethod
    def cel(name: str) -> str:
        """Return the CEL expression that parses a string or an integer as an amount of memory."""
        return f"quantity({Memory._without_b(name)})"

    @staticmethod
    def _without_b(name: str) -> str:
        return f"string({name}).replace('B', '')"
