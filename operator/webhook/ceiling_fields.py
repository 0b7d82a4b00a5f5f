"""Which fields of GPUShares a Namespace can put a ceiling on, and how each is compared with its ceiling.

An absent field has the value `Ceiling.absent`. So a share without a memory limit is above each ceiling of memory. So is
a pod that no share governs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args

from orion.crds import share as share_kind
from orion.crds.annotations import PREFIX
from orion.crds.bounds import Between
from orion.crds.decimals import Number
from orion.crds.policy import Priority
from orion.crds.quantities import Memory
from orion.planning.sharing.due import LEAST

_NUMBER = "^[0-9]{1,3}([.][0-9]{1,6})?$"


@dataclass(frozen=True)
class Ceiling:
    """The ceiling of one field of GPUShares. The functions take and return CEL expressions.

    Args:
        name: the annotation of the Namespace.
        field: the field's path in the spec of a share, such as "memory.limit".
        absent: the value of an absent field.
        must: which texts are a ceiling, in words.
        is_valid: whether a text is a ceiling.
        at_most: whether the first of two valid values is not above the second.
        of: the priority of the shares that can have the field; None: both.
        needs_share: whether a pod that no share governs is above each ceiling.
    """

    name: str
    field: str
    absent: str
    must: str
    is_valid: Callable[[str], str]
    at_most: Callable[[str, str], str]
    of: Priority | None = None
    needs_share: bool = False

    @property
    def variable(self) -> str:
        """The variable with the annotation's text, if there is one: `maxMemory` of orion/max-memory."""
        first, *others = self.name.removeprefix(PREFIX).split("-")
        return first + "".join(each.capitalize() for each in others)

    @property
    def value(self) -> str:
        """The annotation's text. `double` does not read a text whose type the API server does not know."""
        return f"string(variables.{self.variable}.value())"

    @property
    def shown(self) -> str:
        """The beginning of the annotation's text, for sentences."""
        return shown(self.value)

    @property
    def is_absent(self) -> str:
        """Whether the Namespace has no such ceiling."""
        return f"!variables.{self.variable}.hasValue()"

    def of_share(self, share: str) -> str:
        """The value of a share's field."""
        return f"{share}.spec{self.path}.orValue({self.absent})"

    @property
    def path(self) -> str:
        """The field's path with optional members."""
        return "".join(f".?{each}" for each in self.field.split("."))


def shown(text: str) -> str:
    """Return the beginning of a text for a sentence. Text with line breaks would replace the whole sentence."""
    first = f"({text}.size() > 32 ? {text}.substring(0, 32) : {text})"
    return f"{first}.replace('\\n', ' ')"


def _number(name: str, field: str, absent: float, kind: Any, of: Priority | None = None) -> Ceiling:
    bounds = _bounds(kind)

    def is_valid(text: str) -> str:
        least, most = bounds.least.cel_literal, bounds.most.cel_literal
        return f"{text}.matches('{_NUMBER}') && double({text}) >= {least} && double({text}) <= {most}"

    def at_most(low: str, high: str) -> str:
        return f"double({low}) <= double({high})"

    return Ceiling(f"{PREFIX}{name}", field, repr(absent), bounds.must, is_valid, at_most, of)


def _memory(name: str, field: str) -> Ceiling:
    bounds = _bounds(share_kind.MemoryAmount)

    def at_most(low: str, high: str) -> str:
        return Memory.cel_compare(Memory.cel(low), "<=", Memory.cel(high))

    def is_valid(text: str) -> str:
        least, most = (f"'{bound}'" for bound in (bounds.least, bounds.most))
        return f"{Memory.cel_valid(text)} && {at_most(least, text)} && {at_most(text, most)}"

    return Ceiling(f"{PREFIX}{name}", field, f"'{bounds.most}'", bounds.must, is_valid, at_most, needs_share=True)


def _bounds(kind: Any) -> Between:
    return next(each for each in get_args(kind) if isinstance(each, Between))


_FromLeastRequest = Annotated[Number, Between(Number(LEAST), Number(1), "a number", "0.2")]
""" A be pod without a request is sure of 0.01, so no ceiling is below it. """

OF_PRIORITY = Ceiling(
    f"{PREFIX}max-priority",
    "priority",
    f"'{Priority.HP}'",
    f"must be {' or '.join(Priority)}",
    lambda text: f"{text} in {[str(each) for each in Priority]}",
    lambda low, high: f"({low} == '{Priority.BE}' || {high} == '{Priority.HP}')",
)
CEILINGS = (
    OF_PRIORITY,
    _number("max-slowdown", "maxSlowdown", 1.0, share_kind.Slowdown, Priority.HP),
    _number("max-request", "compute.request", LEAST, _FromLeastRequest, Priority.BE),
    replace(_number("max-time", "compute.limit", 1.0, share_kind.PartOfGPU), needs_share=True),
    _memory("max-memory", "memory.limit"),
)
