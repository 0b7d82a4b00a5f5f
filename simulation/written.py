"""What the files that users write have in common: fields, amounts of memory, and the sentence about a wrong value.

Fleets, clusters and scenarios use it, so the same text means the same in each of them.
"""

import math
import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from orion.crds.errors import sentence
from orion.crds.model import Model
from orion.crds.quantities import Memory
from orion.errors import Unreadable

_UNIT = re.compile(r"[kKMGTPE]i?B?$")
_FORM = "memory is given in GB, such as 40, or with a unit, such as 40Gi"


class Written(Model):
    """A part of a file; a field that does not exist is an error that lists the fields that do."""

    @model_validator(mode="before")
    @classmethod
    def _name_what_exists(cls, plain: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        if not isinstance(plain, dict | cls):
            raise ValueError(f"there must be fields here: {', '.join(known)}")
        for name in plain if isinstance(plain, dict) else ():
            if name not in known:
                raise ValueError(f"there is no field {str(name)[:40]!r}; there are {', '.join(known)}")
        return plain


WrittenT = TypeVar("WrittenT", bound=BaseModel)


def gigabytes(value: Any) -> float:
    """Return an amount of memory in GB: a number is GB already, and text has a unit.

    Raises:
        ValueError: it is no amount, or less than 0.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        amount = float(value)
    elif isinstance(value, str) and _UNIT.search(value):
        try:
            amount = Memory(value.replace(" ", "")).bytes / 1e9
        except ValueError:
            amount = math.nan
    else:
        amount = math.nan
    if not math.isfinite(amount):
        raise ValueError(f"{str(value)[:40]!r} is no amount; {_FORM}")
    if amount < 0:
        raise ValueError(f"{value} is less than 0; {_FORM}")
    return amount


def _some_gigabytes(value: Any) -> float:
    if not (amount := gigabytes(value)):
        raise ValueError(f"{value} is too little; {_FORM}")
    return amount


Gigabytes = Annotated[float, BeforeValidator(gigabytes), Field(ge=0)]
SomeGigabytes = Annotated[float, BeforeValidator(_some_gigabytes), Field(gt=0)]


def checked(path: Path, model: type[WrittenT], plain: Any) -> WrittenT:
    """Return the values of a file.

    Args:
        path: the file.
        model: the fields that the file may have.
        plain: what the file has.

    Raises:
        Unreadable: with a sentence about the first wrong value.
    """
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        raise _refusal(path, error, plain) from error


def _refusal(path: Path, error: ValidationError, plain: Any) -> Unreadable:
    """Return the sentence about the first wrong value; `plain` gives the name of the thing that has the value."""
    text = sentence(error).replace("Input should be", "it must be").replace("Field required", "it is missing")
    place = error.errors(include_url=False)[0]["loc"]
    if len(place) > 1 and isinstance(place[1], int):
        item = plain[place[0]][place[1]]
        if isinstance(item, dict) and isinstance(item.get("name"), str) and ": " in text:
            text = text.replace(": ", f" ({item['name']}): ", 1)
    return Unreadable(f"{path}: {text}: correct it")
