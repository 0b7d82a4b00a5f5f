"""The fields of a GPU's policy that people may set: one for each row of `hook/policy_table.py`, within its bounds.

The agent's settings, administrators' requests and the systems of `orion bench` all use this model.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from orion.hook.policy_table import TABLE, Row, Table
from orion.node_agent.pages.policy_words import Policy


def fields(table: Table, policy: str | None = None) -> dict[str, Any]:
    """Return the fields of a model: the policy's name and the table's rows; None: not set.

    Args:
        table: the policies and their rows.
        policy: the default for the policy's name.
    """

    def known(policy: str) -> str:
        if policy not in table.names:
            values = {"policy": policy, "names": ", ".join(table.names)}
            raise PydanticCustomError("unknown_policy", "there is no policy '{policy}'; there are {names}", values)
        return policy

    return {"policy": (Annotated[str, AfterValidator(known)] | None, policy)} | {
        row.name: (_within_bounds(row) | None, Field(default=None, description=row.sentence)) for row in table.all_rows
    }


def _within_bounds(row: Row) -> Any:
    if row.kind is float:
        return Annotated[float, Field(ge=row.least, le=row.most, allow_inf_nan=False)]
    return Annotated[int, Field(ge=int(row.least), le=int(row.most))]


def refuse_disorder(values: Mapping[str, float]) -> None:
    """Reject fields that contradict each other; fields that are not given have their defaults.

    Raises:
        ValueError: the linger's floor is above its ceiling.
    """
    defaults = {row.name: row.default for row in TABLE.rows}
    floor, ceiling = (values.get(name, defaults[name]) for name in ("linger_floor_us", "linger_ceiling_us"))
    if floor > ceiling:
        raise ValueError(f"linger_floor_us {floor:g} must not exceed linger_ceiling_us {ceiling:g}")


_Fields = create_model("_Fields", __config__=ConfigDict(frozen=True, extra="forbid"), **fields(TABLE))


class PolicyChanges(_Fields):  # type: ignore[misc, valid-type]
    """The fields that people set; None leaves a value unchanged."""

    def over(self, now: Policy) -> Policy:
        """Return ``now`` with these changes.

        Raises:
            ValueError: the linger's floor is above its ceiling.
        """
        given = self.model_dump(exclude_none=True)
        kind = TABLE.number(given["policy"]) if "policy" in given else None
        words = {row.word: row.to_page(given[row.name]) for row in TABLE.all_rows if row.name in given}
        policy = now.changed(kind, words)
        refuse_disorder(policy.values())
        return policy
