"""The base of the models that Orion writes into an annotation: one line of JSON that names its format.

Equal models are equal text, so a writer does not rewrite an unchanged annotation. An older reader rejects a later
format, which it would misread.
"""

import json
from typing import Annotated, ClassVar, Self

from pydantic import Field

from orion.crds.model import Model
from orion.errors import Unreadable


class AnnotationText(Model):
    """The value of an annotation. A subclass gives the three class variables, and a default to `format`."""

    FORMAT: ClassVar[int]
    """ The latest known format. """

    what: ClassVar[str]
    """ The thing's name, for errors. """

    strictly: ClassVar[bool]
    """ Whether an unknown field is an error. """

    format: Annotated[int, Field(ge=1)]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the model of an annotation's text.

        Raises:
            Unreadable: the text does not match this model, or its format is later than `FORMAT`.
        """
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            raise Unreadable(f"{cls.what}: it is not JSON") from None
        model = cls._validate(plain, cls.what, cls.strictly)
        if model.format > cls.FORMAT:
            raise Unreadable(f"{cls.what}: its format {model.format} is later than {cls.FORMAT}, the latest known one")
        return model

    def as_json(self) -> str:
        """Return the annotation's text: one line, the same for equal models."""
        return json.dumps(self.plain(), sort_keys=True, separators=(",", ":"))
