"""What an agent can be told at its start."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orion.hook import layout
from orion.node_agent import pages
from orion.node_agent.gpus.factory import Choice

PolicyName = Literal["orion", "gate", "none", "streams", "reef", "ticktock", "orion-2024"]
POLICY_KINDS: dict[str, layout.PolicyKind] = {
    "orion": layout.PolicyKind.ORION,
    "gate": layout.PolicyKind.GATE,
    "none": layout.PolicyKind.NONE,
    "streams": layout.PolicyKind.STREAMS,
    "reef": layout.PolicyKind.REEF,
    "ticktock": layout.PolicyKind.TICKTOCK,
    "orion-2024": layout.PolicyKind.ORION_2024,
}
POLICY_NAMES = {kind: name for name, kind in POLICY_KINDS.items()}

SLOWDOWN_MAX = 100.0
MINIMUM_SHARE_MAX = 0.5
SMS_MAX = 65_535


def milli(ratio: float) -> int:
    """Return a ratio in the thousandths that pages hold."""
    return round(ratio * 1_000)


class PolicySettings(BaseModel):
    """How a GPU's clients share it; times in microseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: PolicyName = "orion"
    """ `orion`: be waits while hp is busy, but for what `max_slowdown` allows. `gate`: be always waits for hp.
    `none`: nobody waits for anybody. The others are re-implementations of published schedulers, for comparison. """

    window_us: int = Field(default=400, ge=50, le=1_000_000)
    """ Expected be work in flight: what an hp launch may have to wait for. Larger: more be throughput. """

    linger_floor_us: int = Field(default=50, ge=1, le=1_000_000)
    """ hp counts as busy for at least so long after it drained. """

    linger_ceiling_us: int = Field(default=2_000, ge=1, le=1_000_000)
    """ And at most so long, whatever its gaps were. """

    stall_ms: int = Field(default=1_000, ge=10, le=600_000)
    """ An hp client busy for so long without completing anything is no longer waited for. """

    max_slowdown: float = Field(default=1.0, ge=1, le=SLOWDOWN_MAX, allow_inf_nan=False)
    """ orion: how much longer hp's work may take than on a GPU of its own; 1: no overlap. """

    sharing_cost: float = Field(default=1.0, ge=1, le=SLOWDOWN_MAX, allow_inf_nan=False)
    """ orion: how much longer hp's work takes for sharing a context (MPS) alone, as measured; 1: not known. """

    overlap_sms: int = Field(default=0, ge=0, le=SMS_MAX)
    """ orion: SMs that long be kernels have while hp is busy; 0: half of the GPU's. """

    minimum_share: float = Field(default=0.0, ge=0, le=MINIMUM_SHARE_MAX, allow_inf_nan=False)
    """ be runs for at least this share of the time, however busy hp is; 0: no floor. """

    long_kernel_us: int = Field(default=5_000, ge=1, le=60_000_000)
    """ be kernels longer than this leave SMs to hp even while it is idle (where contexts share), and are named. """

    reef_depth: int = Field(default=12, ge=1, le=4_096)
    """ reef: be launches queued on the GPU. """

    orion_2024_sms: int = Field(default=0, ge=0, le=SMS_MAX)
    """ orion-2024: SMs that a be kernel may need beside hp; 0: all. """

    orion_2024_duration_us: int = Field(default=160, ge=1, le=60_000_000)
    """ orion-2024: be work issued before a drain. """

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
            max_slowdown_milli=milli(self.max_slowdown),
            sharing_cost_milli=milli(self.sharing_cost),
            overlap_sms=self.overlap_sms,
            minimum_share_milli=milli(self.minimum_share),
            long_kernel_ns=self.long_kernel_us * 1_000,
            reef_depth=self.reef_depth,
            orion_2024_sms=self.orion_2024_sms,
            orion_2024_duration_ns=self.orion_2024_duration_us * 1_000,
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

    configuration: Path | None = None
    """ The node's configuration file: which GPUs are Orion's, and in how many slots; followed while the agent runs.
    None: all GPUs, in as many slots as said above. """

    node_name: str = Field(default="", max_length=253)
    """ This node in its cluster; empty: the agent is in none. """

    kubeconfig: Path | None = None
    """ The way to the API server; None: the pod's own, else $KUBECONFIG. """

    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """ The kubelet's socket that tells which container holds which slot. """

    recovery_seconds: float = Field(default=10.0, ge=0.1, le=3_600, allow_inf_nan=False)
    """ A GPU that was in trouble has to be well for so long before pods come to it again; longer each time. """

    claim_seconds: float = Field(default=60.0, ge=0, le=3_600, allow_inf_nan=False)
    """ A GPU counts as another device plugin's for so long after that was seen to offer it. """

    @property
    def serves_plugin(self) -> bool:
        """Whether a device plugin depends on this agent, so that it follows GPUs and configuration by itself."""
        return bool(self.node_name) or self.configuration is not None

    @field_validator("metrics_address")
    @classmethod
    def _host_and_port(cls, address: str) -> str:
        _, _, port = address.rpartition(":")
        if address and not (port.isascii() and port.isdigit() and int(port) < 65_536 and ":" in address):
            raise ValueError("it must be HOST:PORT, with a port below 65536, or empty for no metrics")
        return address
