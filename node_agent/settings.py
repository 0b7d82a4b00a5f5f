"""What an agent can be told at its start."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orion.hook import layout
from orion.node_agent import pages
from orion.node_agent.gpus.factory import Choice

PolicyName = Literal["gate", "none"]
POLICY_KINDS: dict[str, layout.PolicyKind] = {"gate": layout.PolicyKind.GATE, "none": layout.PolicyKind.NONE}


class PolicySettings(BaseModel):
    """How a GPU's clients share it; times in microseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: PolicyName = "gate"
    """ `gate`: be waits while hp is busy. `none`: nobody waits for anybody. """

    window_us: int = Field(default=400, ge=50, le=1_000_000)
    """ Expected be work in flight: what an hp launch may have to wait for. Larger: more be throughput. """

    linger_floor_us: int = Field(default=50, ge=1, le=1_000_000)
    """ hp counts as busy for at least so long after it drained. """

    linger_ceiling_us: int = Field(default=2_000, ge=1, le=1_000_000)
    """ And at most so long, whatever its gaps were. """

    stall_ms: int = Field(default=1_000, ge=10, le=600_000)
    """ An hp client busy for so long without completing anything is no longer waited for. """

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.linger_floor_us > self.linger_ceiling_us:
            raise ValueError(
                f"linger_floor_us {self.linger_floor_us} must not exceed linger_ceiling_us {self.linger_ceiling_us}"
            )
        return self

    def as_page(self) -> pages.Policy:
        """Return it as the policy page has it."""
        return pages.Policy(
            kind=POLICY_KINDS[self.policy],
            window_ns=self.window_us * 1_000,
            linger_floor_ns=self.linger_floor_us * 1_000,
            linger_ceiling_ns=self.linger_ceiling_us * 1_000,
            stall_ns=self.stall_ms * 1_000_000,
        )


class AgentSettings(BaseModel):
    """All of an agent's settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path = Path("/run/orion")
    """ Holds the sockets and the state; one agent a root. """

    gpus: Choice = "auto"
    """ Where GPUs come from; `auto`: NVML if it finds one, else simulated ones if asked for, else none. """

    simulated_library: Path | None = None
    """ The simulated driver; None: the one of this package. """

    metrics_address: str = "127.0.0.1:9435"
    """ HOST:PORT of the Prometheus metrics; port 0: a free one, which is logged; empty: none. """

    hp_slots: int = Field(default=1, ge=0, le=64)
    """ hp slots made at the start on every GPU. """

    be_slots: int = Field(default=8, ge=0, le=64)
    """ be slots made at the start on every GPU. """

    policy: PolicySettings = PolicySettings()
    """ For GPUs that no earlier agent knew. """

    @field_validator("metrics_address")
    @classmethod
    def _host_and_port(cls, address: str) -> str:
        _, _, port = address.rpartition(":")
        if address and not (port.isascii() and port.isdigit() and int(port) < 65_536 and ":" in address):
            raise ValueError(f"HOST:PORT, with a port below 65536, or empty for no metrics; not {address!r}")
        return address
