"""Rules between fields: each in CEL, for the API server, and in Python, for programs that read an object.

Both forms stand side by side, so that a change of one includes the other. Tests check both against the table of invalid
shares in tests/crds. A rule about a change (`oldSelf`) has no Python form: only the API server knows the old object.

Rejected: running CEL in Python. That needs another implementation of CEL, and its differences from the API server's
would show only in a cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

KEY = "x-kubernetes-validations"

FIELD = "{field}"
""" Placeholder in a message for the path of the value that has the rule, such as spec.maxSlowdown. """

BROKEN_RULE = "broken_rule"
""" The type of the pydantic error for a broken rule; the error's context contains the member that the rule is about.
"""


@dataclass(frozen=True)
class Rule:
    """A condition that an object must meet.

    Args:
        cel: the expression; `self` is the value that has the rule.
        message: a sentence that names the field and says what to do; `FIELD` is replaced by the path.
        field: the member of `self` that the error names, such as "maxSlowdown"; empty: the value itself.
        holds: the same condition in Python, on the model; None for a rule about a change.
        spares_stored: the rule is younger than the kind. Programs read objects that were stored before it; the API
            server refuses the broken value only when its part of the object changes.
    """

    cel: str
    message: str
    field: str = ""
    holds: Callable[[Any], bool] | None = None
    spares_stored: bool = False

    def check(self, model: Any) -> None:
        """Raise pydantic's error if the rule does not hold."""
        if self.holds is not None and not self.holds(model):
            raise PydanticCustomError(BROKEN_RULE, "{message}", {"message": self.message, "member": self.field})

    def as_schema(self) -> dict[str, str]:
        """Return the rule in the form of the CustomResourceDefinition."""
        plain = {"rule": self.cel, "message": self.message}
        return plain | ({"fieldPath": f".{self.field}"} if self.field else {})


def add_rules(schema: JsonSchemaValue, *rules: Rule) -> JsonSchemaValue:
    """Append rules to those of a JSON schema."""
    if rules:
        schema[KEY] = [*schema.get(KEY, ()), *(rule.as_schema() for rule in rules)]
    return schema


@dataclass(frozen=True)
class Immutable:
    """Marks a field (in ``Annotated``) that cannot change once it is set.

    Args:
        why: the reason and what to do instead; the end of the error sentence.
    """

    why: str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        rule = Rule("self == oldSelf", f"{FIELD} cannot be changed: {self.why}")
        return add_rules(dict(handler.resolve_ref_schema(handler(core))), rule)
