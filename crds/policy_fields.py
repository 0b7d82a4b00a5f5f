"""Fields of GPUShares and grants, made from the rows of `hook/policy_table.py`: types, bounds, descriptions."""

from typing import Annotated, Any

from pydantic import Field, StrictInt

from orion.crds.bounds import Between
from orion.crds.decimals import Number
from orion.crds.durations import Duration
from orion.hook.policy_table import RELEASE, Row, Unit

_TUNING = "tuning."
_UNITS = {Unit.RATIO: "a factor", Unit.SMS: "SMs", Unit.NUMBER: "none"}
_GRANTED_MOST = {
    Unit.MICROSECONDS: 60_000_000,
    Unit.MILLISECONDS: 60_000,
    Unit.RATIO: 100_000,
    Unit.SMS: 65_535,
    Unit.NUMBER: 2**31 - 1,
}
""" The highest value in a grant, by unit; the agent clamps the value to the field's own bounds. """


def tuning() -> dict[str, Any]:
    """Return the fields of `spec.tuning` from the table, in the form that `create_model` takes."""
    rows = [row for row in RELEASE.rows if row.share.startswith(_TUNING) and row.share.count(".") == 1]
    return {
        row.stem: (
            _kind(row) | None,
            Field(default=None, alias=row.share.removeprefix(_TUNING), description=_description(row)),
        )
        for row in rows
    }


def granted() -> dict[str, Any]:
    """Return the fields of a grant's policy: whole numbers, which the agent clamps to their bounds."""
    rows = [row for row in RELEASE.rows if row.share]
    return {row.granted: (Annotated[int, Field(ge=0, le=_GRANTED_MOST[row.unit])] | None, None) for row in rows}


def amount(row: Row, value: Any) -> int:
    """Return a share's value in the unit of the grant."""
    if isinstance(value, Number):
        return value.milli
    return value.microseconds if isinstance(value, Duration) else int(value)


def _kind(row: Row) -> Any:
    if row.unit.is_time:
        return Annotated[Duration, Between(_time(row, row.least), _time(row, row.most), "a duration", _default(row))]
    if row.unit is Unit.RATIO:
        example = "1.3" if row.least >= 1 else "0.1"
        return Annotated[Number, Between(Number(row.least), Number(row.most), "a number", example)]
    # At least 1: a share gets the default (0) by omitting the field.
    return Annotated[
        StrictInt, Field(ge=max(1, int(row.least)), le=int(row.most), json_schema_extra={"format": "int32"})
    ]


def _time(row: Row, value: float) -> Duration:
    return Duration.of(row.to_page(value))


def _default(row: Row) -> str:
    return str(_time(row, row.default)) if row.unit.is_time else f"{row.default:g}"


def _description(row: Row) -> str:
    policies = f"Polic{'ies' if len(row.policies) > 1 else 'y'} {', '.join(row.policies)}."
    unit = "a duration" if row.unit.is_time else _UNITS[row.unit]
    default = _default(row) if row.unit.is_time or row.default else ""
    default = ", ".join(filter(None, (default, row.default_is)))
    return f"{row.sentence} {policies} Unit: {unit}. Default: {default}."
