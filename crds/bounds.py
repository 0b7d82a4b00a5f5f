"""Bounds of durations, numbers, quantities and words: CEL and Python report a wrong value in the same sentence."""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.crds.quantities import Quantity
from orion.crds.rules import FIELD, Rule, add_rules

Bound = Duration | Number | Quantity


@dataclass(frozen=True)
class Between:
    """Inclusive bounds of a `Duration`, a `Number` or a `Quantity`, for ``Annotated``.

    Args:
        least: the lowest value, such as ``Duration("50us")``.
        most: the highest value, of the same type.
        what: the noun for the value in the error sentence.
        example: a valid value, for the error sentence.
    """

    least: Bound
    most: Bound
    what: str
    example: str

    @property
    def must(self) -> str:
        """The rule in words; the beginning of the error sentence."""
        return f"must be {self.what} from {self.least} to {self.most}, such as {self.example}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kind = type(self.least)

        def check(value: object) -> Bound:
            try:
                read = kind.read(value)
            except ValueError:
                raise ValueError(f"{self.must}; not {value!r}") from None
            if not self.least.value <= read.value <= self.most.value:
                raise ValueError(f"{self.must}; not {value}")
            return read

        return core_schema.no_info_before_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = dict(handler(core))
        schema.pop("pattern", None)  # the API server would report it beside the rule, which is clearer
        kind = type(self.least)
        least = kind.cel_compare(kind.cel("self"), ">=", self.least.cel_literal)
        most = kind.cel_compare(kind.cel("self"), "<=", self.most.cel_literal)
        cel = " && ".join(filter(None, (kind.cel_valid("self"), least, most)))
        return add_rules(schema, Rule(cel, f"{FIELD} {self.must}"))
