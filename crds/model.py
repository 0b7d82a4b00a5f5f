"""The base of all API types: names in camelCase; unknown fields are ignored on reading and rejected on writing.

A reader ignores unknown fields because a newer API server, operator or agent may write fields that an older reader does
not know. Data that a person or this version writes must not have unknown fields: they are misspelt. A reader never
writes back a whole object (it patches), so the fields that it ignored are preserved.
"""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from orion.crds.descriptions import descriptions
from orion.crds.errors import UNKNOWN_FIELD, sentence
from orion.crds.rules import Rule, add_rules
from orion.errors import Unreadable

GROUP = "orion.gpu"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

STRICTLY = "strictly"
""" Context of a validation that rejects unknown fields. Pydantic's own argument for that would also reject unknown
fields of metadata. """


class Model(BaseModel):
    """A part of an API object. The string under a field is its description, which `kubectl explain` shows."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def read(cls, plain: Any, what: str = "") -> Self:
        """Return the model of an API object or of a part of one; unknown fields are ignored.

        Args:
            plain: parsed JSON: dicts, lists, strings, numbers.
            what: the thing's name, for the error.

        Raises:
            Unreadable: `plain` does not match this model.
        """
        return cls._validate(plain, what, strictly=False)

    @classmethod
    def read_strictly(cls, plain: Any, what: str = "") -> Self:
        """Return the model of data that is to be written.

        Unlike in `read`, an unknown field is an error, and so is a value that was allowed before a later rule.

        Raises:
            Unreadable: `plain` does not match this model, or has an unknown field.
        """
        return cls._validate(plain, what, strictly=True)

    def plain(self) -> dict[str, Any]:
        """Return the JSON form of an API object, without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def _validate(cls, plain: Any, what: str, strictly: bool) -> Self:
        try:
            return cls.model_validate(plain, context=STRICTLY if strictly else None)
        except ValidationError as error:
            raise Unreadable(sentence(error, what)) from None

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_fields(cls, plain: Any, info: ValidationInfo) -> Any:
        if info.context == STRICTLY and isinstance(plain, dict) and cls.model_config.get("extra") != "allow":
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for name in plain.keys() - known:
                raise PydanticCustomError(UNKNOWN_FIELD, "there is no such field", {"member": name})
        return plain

    @model_validator(mode="after")
    def _check_rules(self, info: ValidationInfo) -> Self:
        for rule in self.rules:
            if info.context == STRICTLY or not rule.spares_stored:
                rule.check(self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        plain = handler.resolve_ref_schema(schema)
        for name, text in descriptions(cls).items():
            plain["properties"][cls.model_fields[name].alias or name]["description"] = text
        add_rules(plain, *cls.rules)
        return schema
