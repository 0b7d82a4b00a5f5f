"""The agent's settings."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from orion.node_agent.gpus.factory import Choice
from orion.node_agent.pages import policy_words
from orion.node_agent.pages.policy_changes import PolicyChanges


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

    policy: PolicyChanges = PolicyChanges()
    """ For GPUs that no earlier agent knew: what differs from the defaults. """

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
    """ A GPU counts as another device plugin's for so long after that plugin was last seen to advertise it. """

    @field_validator("policy")
    @classmethod
    def _over_the_default(cls, policy: PolicyChanges) -> PolicyChanges:
        policy.over(policy_words.DEFAULT)
        return policy

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
