"""The scenario files of `orion bench memory`."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orion.bench import scenario_files
from orion.node_agent.clients.credit import EXTRA_MIB

Seconds = Annotated[float, Field(gt=0, le=3600)]
Gib = Annotated[float, Field(ge=0.0625, le=1024)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Driver(_Strict):
    """What the simulated driver's checkpoints cost, and what each context takes, on a real GPU too."""

    context_mib: int = Field(default=300, ge=0, le=4096)
    """ On a real GPU 900 if nothing is said: the code of PyTorch's libraries takes some of it. """
    out_ms_per_gib: float = Field(default=450.0, ge=0)
    back_ms_per_gib: float = Field(default=170.0, ge=0)
    lock_us: int = Field(default=2000, ge=0)

    def on_a_gpu(self) -> "Driver":
        """Return the same with what contexts take on a real GPU."""
        return self if "context_mib" in self.model_fields_set else self.model_copy(update={"context_mib": 900})


class Setting(_Strict):
    """What all kinds have."""

    name: str = Field(pattern="^[a-z0-9-]+$")
    gpu_gib: Gib
    """ The simulated GPU's memory; on a real GPU what a ballast leaves free. """
    stay_factor: float = Field(default=20.0, ge=0)
    """ The agent's --parking-stay-factor. """
    step_ms: Annotated[float, Field(gt=0, le=10_000)] = 10.0
    """ One step of a be trainer: kernels of 1 ms. """


class Server(_Strict):
    """The hp server; requests arrive by a Poisson process."""

    gib: Gib
    kernel_ms: float = Field(default=2.0, gt=0)
    per_second: float = Field(default=20.0, gt=0)


class Changes(Setting):
    """One trainer is parked and comes back several times."""

    kind: Literal["changes"]
    gib: Gib
    changes: int = Field(ge=1, le=100)
    steps: int = Field(default=100, ge=1)
    """ Between two changes; each change falls among them. """
    torch: bool = True
    """ On a real GPU: a trainer of PyTorch. """


class Growth(Setting):
    """hp's cache grows on a card that be trainers fill, several times."""

    kind: Literal["growth"]
    tenants: int = Field(ge=1, le=32)
    gib: Gib
    hp: Server
    mib_per_second: float = Field(default=1000.0, gt=0)
    block_mib: int = Field(default=20, ge=1)
    seconds: Seconds
    rounds: int = Field(default=2, ge=1)
    pause_seconds: Seconds = 10.0
    """ After each round, with the cache freed: for those who left to come back. """
    resident_seconds: Seconds = 10.0


class Beside(Setting):
    """hp serves in windows in turns: beside resident trainers, and while they leave and come back."""

    kind: Literal["beside"]
    tenants: int = Field(ge=1, le=32)
    gib: Gib
    hp: Server
    seconds: Seconds
    """ Of a window. """
    pairs: int = Field(default=4, ge=1)


class Density(Setting):
    """More trainers than fit take turns beside hp."""

    kind: Literal["density"]
    tenants: int = Field(ge=2, le=32)
    fit: int = Field(ge=1)
    """ How many trainers fit at a time; the run of these alone is what the others are compared with. """
    gib: Gib
    hp: Server
    seconds: Seconds
    settle_seconds: float = Field(default=5.0, ge=0)
    alone_seconds: Seconds = 10.0
    resident_seconds: Seconds = 10.0

    @model_validator(mode="after")
    def _more_than_fit(self) -> "Density":
        if self.fit >= self.tenants:
            raise ValueError(f"fit is {self.fit}, and there are {self.tenants} tenants; lower `fit`, or add tenants")
        return self


class Limit(Setting):
    """Processes of one slot allocate and free at random; one after the other is killed and replaced."""

    kind: Literal["limit"]
    processes: int = Field(ge=1, le=16)
    threads: int = Field(ge=1, le=32)
    limit_gib: Gib
    most_mib: int = Field(default=256, ge=2)
    """ The largest allocation. """
    seconds: Seconds
    kill_seconds: Seconds = 5.0
    """ Between two kills. """


class Moving(Setting):
    """Trainers that do not fit together share a card in three ways, without hp."""

    kind: Literal["moving"]
    tenants: int = Field(ge=2, le=32)
    gib: Gib
    turn_ms: float = Field(default=100.0, gt=0, le=100)
    """ The agent's --longest-turn-ms, for all ways; where memory moves with turns, the agent makes them longer. """
    seconds: Seconds
    settle_seconds: float = Field(default=5.0, ge=0)
    rounds: int = Field(default=1, ge=1)
    """ All ways in turns; each second round has them in the opposite order. """


class Need(Setting):
    """An hp allocation finds a full GPU, several times, and a be trainer leaves for it."""

    kind: Literal["need"]
    gib: Gib
    hp: Server
    need_gib: Gib
    """ What hp allocates in each round. """
    rounds: int = Field(ge=1, le=1000)


class AgentCost(Setting):
    """Tenants of several GPUs fit, or take turns on each, and do nothing else."""

    kind: Literal["agent"]
    gpus: int = Field(ge=1, le=16)
    tenants: int = Field(ge=1, le=16)
    """ Of each GPU. """
    gib: Gib
    seconds: Seconds
    settle_seconds: float = Field(default=5.0, ge=0)
    parts: int = Field(default=4, ge=1)
    """ Equal parts of the time, of which each has a figure. """


class CreditRequests(Setting):
    """A process allocates beside an idle one of its slot; each allocation needs more credit than the process has."""

    kind: Literal["credit"]
    limit_gib: Gib
    requests: int = Field(ge=1, le=10_000)
    block_mib: int = Field(default=EXTRA_MIB + 8, gt=EXTRA_MIB)
    """ Size of an allocation: more than a client gets beyond what it asks for, so that each one needs an answer. """
    every_seconds: Seconds = 0.01

    @model_validator(mode="after")
    def _fits(self) -> "CreditRequests":
        if self.requests * self.block_mib >= self.limit_gib * 1024:
            raise ValueError(
                f"{self.requests} allocations of {self.block_mib} MiB do not fit a limit_gib of {self.limit_gib:g}; "
                "lower `requests`, or raise `limit_gib`"
            )
        return self


SIMULATED_ONLY = {
    "moving": "managed memory beyond a real GPU may hang the host",
    "need": "processes are killed while they are away, which may hang the host",
    "agent": "the machine has other GPUs",
}
""" Kinds that run on the simulated GPU only, and why. """

Kind = Annotated[
    Changes | Growth | Beside | Density | Limit | Moving | Need | AgentCost | CreditRequests,
    Field(discriminator="kind"),
]


class Scenario(_Strict):
    """What to measure."""

    driver: Driver = Driver()
    settings: list[Kind] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_names(self) -> "Scenario":
        scenario_files.check_names([setting.name for setting in self.settings])
        return self


SHIPPED = Path(__file__).resolve().parent.parent / "scenarios" / "memory.yaml"


def read(path: Path) -> Scenario:
    """Return the scenario of a file.

    Raises:
        Unreadable: the file cannot be read, or has a wrong field; the text names the field.
    """
    return scenario_files.read(path, Scenario, "a scenario of `orion bench memory`", "has no settings")


def chosen(named: str, only: str | None) -> tuple[Scenario, str | None]:
    """Return the scenario of a file, or the shipped one with one setting of it; and the one setting to measure.

    Args:
        named: a file, or the name of a setting of the shipped scenario.
        only: the name of a setting.

    Raises:
        Unreadable: as for `read`.
    """
    shipped = read(SHIPPED)
    if only is None and named in [setting.name for setting in shipped.settings] and not Path(named).exists():
        return shipped, named
    return read(Path(named)), only
