"""What all API types have in common: names in camelCase, unknown fields tolerated on reading and refused on writing.

Tolerated, because a newer API server, operator or agent may say more than an older reader knows; refused where a
person or a program of this version writes, because there an unknown field is a misspelt one. A reader never writes back
a whole object that it read (it patches), so what it did not understand is preserved.
"""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from orion.crds.errors import UNKNOWN_FIELD, Unreadable, sentence
from orion.crds.rules import Rule, add_rules

GROUP = "orion.gpu"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

STRICTLY = "strictly"
""" Context of a validation that refuses unknown fields; pydantic's own argument for it would reach into metadata. """


class Model(BaseModel):
    """A part of an API object. A string under a field is its description, which people read in `kubectl explain`."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def read(cls, plain: Any, what: str = "") -> Self:
        """Return what an API object, or a part of one, says; fields that are not known are passed over.

        Args:
            plain: of JSON: dicts, lists, strings, numbers.
            what: the thing's name, for the error.

        Raises:
            Unreadable: it is not of this type.
        """
        return cls._validate(plain, what, strictly=False)

    @classmethod
    def read_strictly(cls, plain: Any, what: str = "") -> Self:
        """Return the same of what is about to be written: a field that is not known is an error.

        Raises:
            Unreadable: it is not of this type, or has a field that is not known.
        """
        return cls._validate(plain, what, strictly=True)

    def plain(self) -> dict[str, Any]:
        """Return it as an API object has it; what is None is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def _validate(cls, plain: Any, what: str, strictly: bool) -> Self:
        try:
            return cls.model_validate(plain, context=STRICTLY if strictly else None)
        except ValidationError as error:
            raise Unreadable(sentence(error, what)) from None

    @model_validator(mode="before")
    @classmethod
    def _knows_its_fields(cls, plain: Any, info: ValidationInfo) -> Any:
        if info.context == STRICTLY and isinstance(plain, dict) and cls.model_config.get("extra") != "allow":
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for name in plain.keys() - known:
                raise PydanticCustomError(UNKNOWN_FIELD, "there is no such field", {"member": name})
        return plain

    @model_validator(mode="after")
    def _keeps_its_rules(self) -> Self:
        for rule in self.rules:
            rule.check(self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        add_rules(handler.resolve_ref_schema(schema), *cls.rules)
        return schema
