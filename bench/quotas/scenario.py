"""The scenario files of `orion bench quotas`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orion.bench import scenario_files
from orion.bench.workloads import check
from orion.errors import Invalid

CHANGE_SECONDS_LEAST = 6.0
""" Half of such a run contains the time in which a change settles, and windows of 1 s. """

Part = Annotated[float, Field(ge=0.001, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Client(_Strict):
    """One slot, and the closed loop that its processes run."""

    priority: Literal["hp", "be"] = "be"
    workload: str
    options: dict[str, Any] = {}
    request: Part | None = None
    limit: Part | None = None
    processes: int = Field(default=1, ge=1, le=8)
    later_request: Part | None = None
    """ The request from the middle of the run on. """

    @model_validator(mode="after")
    def _is_known(self) -> "Client":
        try:
            check(self.workload, self.options)
        except Invalid as error:
            raise ValueError(str(error)) from None
        if self.priority == "hp" and self.later_request is not None:
            raise ValueError("later_request is for priority be")
        return self


class Setting(_Strict):
    """Slots that use a GPU at the same time."""

    name: str = Field(pattern="^[a-z0-9-]+$")
    clients: list[Client] = Field(min_length=1, max_length=8)
    mode: Literal["timeslice", "mps"] = "timeslice"
    longest_turn_ms: float | None = Field(default=None, ge=1, le=100)
    """ The agent's setting; None: its default. """

    @model_validator(mode="after")
    def _has_one_hp(self) -> "Setting":
        if sum(client.priority == "hp" for client in self.clients) > 1:
            raise ValueError("a GPU has one hp slot; give one client of priority hp, with `processes` for several")
        return self


class Scenario(_Strict):
    """What to measure."""

    settle_seconds: float = Field(default=10.0, ge=1)
    seconds: float = Field(default=20.0, ge=4)
    alone_seconds: float = Field(default=2.0, ge=0.5)
    settings: list[Setting] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_names(self) -> "Scenario":
        scenario_files.check_names([setting.name for setting in self.settings])
        return self

    @model_validator(mode="after")
    def _has_seconds_after_changes(self) -> "Scenario":
        changes = any(client.later_request for setting in self.settings for client in setting.clients)
        if changes and self.seconds < CHANGE_SECONDS_LEAST:
            raise ValueError(
                f"seconds is {self.seconds:g}, and a setting has a later_request, so too little of the run comes after "
                f"the change; raise `seconds` to {CHANGE_SECONDS_LEAST:g} or more"
            )
        return self


def read(path: Path) -> Scenario:
    """Return the scenario of a file.

    Raises:
        Unreadable: the file cannot be read, or has a wrong field; the text names the field.
    """
    return scenario_files.read(path, Scenario, "a scenario of `orion bench quotas`", "has no settings")
