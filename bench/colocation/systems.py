"""The systems to compare: the ways in which two processes share a GPU.

A scenario defines systems under its own names; the systems of `STANDARD` need no definition.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model, model_validator

from orion.hook import policy_table
from orion.node_agent.pages import policy_changes

Mode = Literal["timeslice", "mps", "threads"]
"""timeslice: the GPU time-slices the contexts; mps: contexts of one MPS server; threads: threads of one process."""


class Side(BaseModel):
    """What a system adds to the command and environment of hp's or be's processes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    prefix: list[str] = []
    """ Words before the worker's own command. """

    environment: dict[str, str] = {}
    """ Additional variables. """


class _System(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rounds: int | None = Field(default=None, ge=1)
    """ Measure the system only in this many first rounds; None: in all rounds. """

    hp: Side = Side()
    be: Side = Side()


class Alone(_System):
    """hp alone, without the hook and without MPS. Every round measures it, as the reference for all systems."""

    kind: Literal["alone"]


class Timeslice(_System):
    """hp and be without the hook, each with its own context: the driver's default."""

    kind: Literal["timeslice"]


class Mps(_System):
    """hp and be without the hook, under a private MPS daemon."""

    kind: Literal["mps"]
    be_client_priority: Literal[0, 1] | None = None
    """ CUDA_MPS_CLIENT_PRIORITY of be; 1 is below normal. """

    be_active_thread_percentage: float | None = Field(default=None, gt=0, le=100)
    """ CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of be, which limits its share of the SMs. """

    hp_stream_priority: Literal["high"] | None = None
    """ high: hp uses a stream of the highest priority. """


_Policy = create_model("_Policy", __base__=_System, **policy_changes.fields(policy_table.BENCH, "orion"))


class Orion(_Policy):  # type: ignore[misc, valid-type]
    """hp and be under the hook, with a private agent.

    The system may set the policy and the fields of `hook/policy_table.py`; other fields have the agent's defaults.
    """

    kind: Literal["orion"]
    mode: Mode = "timeslice"
    refresh_ms: float | None = Field(default=None, ge=1)
    """ Milliseconds between two switches of contexts (`orion.hook.switching`); None: one switch, before the run. """

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        more = sorted(set(self.policy_fields()) - {"policy", "max_slowdown"})
        if self.mode == "threads" and more:
            raise ValueError(f"mode threads accepts only policy and max_slowdown; remove {', '.join(more)}")
        policy_changes.refuse_disorder(self.policy_fields())
        return self

    @property
    def baselines(self) -> bool:
        """Whether its processes and its agent need the baselines: schedulers of other publications."""
        return policy_table.is_baseline(self.policy)

    @property
    def domain(self) -> str:
        """Name of its agent; systems with the same domain share an agent and its processes."""
        return f"{self.mode}, baselines" if self.baselines else self.mode

    def policy_fields(self) -> dict[str, Any]:
        """Return the policy and its fields for the agent, by the names of the policy table."""
        others = self.model_dump(exclude={"kind", "mode", "rounds", "hp", "be", "refresh_ms"}, exclude_none=True)
        return dict(others)


class PlainStreams(_System):
    """Threads of one process, each on its own stream, without the hook."""

    kind: Literal["plain-streams"]


class Foreign(_System):
    """Another project's scheduler; `hp` and `be` say how each role's processes start under it."""

    kind: Literal["foreign"]
    service: list[str] = []
    """ A command that runs as long as the system's processes; empty: none. """


System = Annotated[Alone | Timeslice | Mps | Orion | PlainStreams | Foreign, Field(discriminator="kind")]
ADAPTER: TypeAdapter[System] = TypeAdapter(System)

_DEFINED: dict[str, dict[str, Any]] = {
    "alone": {"kind": "alone"},
    "timeslice": {"kind": "timeslice"},
    "mps": {"kind": "mps"},
    "mps+priority": {"kind": "mps", "be_client_priority": 1, "hp_stream_priority": "high"},
    "mps+sm-cap": {"kind": "mps", "be_active_thread_percentage": 50},
    "plain-streams": {"kind": "plain-streams"},
}
_SUFFIXES: dict[Mode, str] = {"timeslice": "", "mps": "-in-mps", "threads": "-in-threads"}
_DEFINED |= {
    f"{policy}{suffix}": {"kind": "orion", "mode": mode, "policy": policy}
    for mode, suffix in _SUFFIXES.items()
    for policy in policy_table.BENCH.names
}
STANDARD: dict[str, System] = {name: ADAPTER.validate_python(fields) for name, fields in _DEFINED.items()}
"""Systems that every scenario may use without a definition."""


def needs_mps(system: System) -> bool:
    """Return whether the system's processes are clients of an MPS server."""
    return isinstance(system, Mps) or (isinstance(system, Orion) and system.mode == "mps")


def in_threads(system: System) -> bool:
    """Return whether hp and be are threads of one process."""
    return isinstance(system, PlainStreams) or (isinstance(system, Orion) and system.mode == "threads")
