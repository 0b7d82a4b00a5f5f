"""Rules between fields: each once in CEL, for the API server, and once in Python, for whoever reads an object.

Both stand side by side, so that neither is forgotten when the other changes; the table of invalid shares in tests/crds
is put to both. A rule about a change (`oldSelf`) has no Python side: only the API server knows the object before.

Refused: running CEL in Python. It would be one more implementation of the language, and its differences from the API
server's would be met only in a cluster.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

KEY = "x-kubernetes-validations"

FIELD = "{field}"
""" Stands in a message for the path of the value that carries the rule, such as spec.maxSlowdown. """

BROKEN_RULE = "broken_rule"
""" The type of pydantic's error; its context holds the member that the rule is about. """


@dataclass(frozen=True)
class Rule:
    """Something that must hold.

    Args:
        cel: the expression; `self` is the value that carries the rule.
        message: a sentence that names the field and says what to do; `FIELD` stands for the path.
        field: the member of `self` that an error is put to, such as "maxSlowdown"; empty: the value itself.
        holds: the same in Python, given the model; None for a rule about a change.
    """

    cel: str
    message: str
    field: str = ""
    holds: Callable[[Any], bool] | None = None

    def check(self, model: Any) -> None:
        """Raise pydantic's error if the rule does not hold."""
        if self.holds is not None and not self.holds(model):
            raise PydanticCustomError(BROKEN_RULE, "{message}", {"message": self.message, "member": self.field})

    def as_schema(self) -> dict[str, str]:
        """Return it as the API server wants it."""
        plain = {"rule": self.cel, "message": self.message}
        return plain | ({"fieldPath": f".{self.field}"} if self.field else {})


def add_rules(schema: JsonSchemaValue, *rules: Rule) -> JsonSchemaValue:
    """Put rules into a JSON schema, behind those that are there."""
    if rules:
        schema[KEY] = [*schema.get(KEY, ()), *(rule.as_schema() for rule in rules)]
    return schema


@dataclass(frozen=True)
class Immutable:
    """Marks a field (in ``Annotated``) that may be set once.

    Args:
        why: what to do instead; ends the sentence.
    """

    why: str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        rule = Rule("self == oldSelf", f"{FIELD} cannot be changed: {self.why}")
        return add_rules(dict(handler.resolve_ref_schema(handler(core))), rule)
