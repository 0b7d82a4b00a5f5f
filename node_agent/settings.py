"""The agent's settings."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orion.node_agent.gpus.factory import Choice
from orion.node_agent.pages import policy_words
from orion.node_agent.pages.policy_changes import PolicyChanges


class AgentSettings(BaseModel):
    """All settings of an agent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path = Path("/run/orion")
    """ Directory of the sockets and the state; each agent needs its own directory. """

    gpus: Choice = "auto"
    """ The source of GPUs; `gpus.factory.choose` says what `auto` chooses. """

    simulated_library: Path | None = None
    """ The simulated driver; None: the simulated driver of this package. """

    metrics_address: str = "127.0.0.1:9435"
    """ HOST:PORT of the Prometheus metrics; port 0: any free port, which is logged; empty: no metrics. """

    hp_slots: int = Field(default=1, ge=0, le=64)
    """ Number of hp slots that the agent makes at its start on every GPU. """

    be_slots: int = Field(default=8, ge=0, le=64)
    """ Number of be slots that the agent makes at its start on every GPU. """

    policy: PolicyChanges = PolicyChanges()
    """ Changes to the default policy, for GPUs without a saved policy of a previous agent. """

    configuration: Path | None = None
    """ The node's configuration file: which GPUs Orion manages, and their numbers of slots. The agent follows changes.
    None: all GPUs, with `hp_slots` and `be_slots`. """

    resource_config: Path | None = None
    """ Gemini's resource file, or a folder with one for each GPU; the agent follows changes. None: there is none. """

    longest_turn_ms: float | None = Field(default=None, ge=1, le=100, allow_inf_nan=False)
    """ How long the turn of the be slot is that is due the most; None: so long that a cycle takes about 20 ms,
    under MPS 28 ms. """

    shortest_turn_ms: float = Field(default=0.8, ge=0.5, le=50, allow_inf_nan=False)
    """ No turn of a be slot is planned shorter; a slot that is due less has turns less often. """

    parking_reserve_mib: int = Field(default=512, ge=0, le=1 << 24)
    """ What is kept free for hp at least, where slots can leave a GPU's memory; the agent learns how much more. """

    parking_margin_mib: int = Field(default=256, ge=0, le=1 << 24)
    """ What must be free besides before a slot comes back, and 2 % of what comes back. """

    parking_stay_factor: float = Field(default=20.0, ge=0, le=1e6, allow_inf_nan=False)
    """ A slot that has come back stays so many times as long as leaving and coming back take. """

    parking_answer_seconds: float = Field(default=15.0, ge=0.1, le=3_600, allow_inf_nan=False)
    """ A process that has not answered for so long is passed over. """

    parking_retry_seconds: float = Field(default=60.0, ge=0.1, le=86_400, allow_inf_nan=False)
    """ How long after a refusal a slot is asked again. """

    cgroups: Path | None = None
    """ Where the machine's cgroups are mounted. A slot leaves a GPU only if host memory can hold what it has there.
    None: /sys/fs/cgroup; with simulated GPUs host memory is not looked at, because nothing moves there. """

    node_name: str = Field(default="", max_length=253)
    """ This node's name in its cluster; empty: the agent is outside a cluster. """

    kubeconfig: Path | None = None
    """ Access to the API server; None: the pod's service account, else $KUBECONFIG. """

    operator: str = Field(default="", pattern="^([^/]+/[^/]+)?$")
    """ NAMESPACE/NAME of the operator's Service, and of the ConfigMap with the certificates of its replicas. """

    operator_address: str = ""
    """ HOST:PORT of the operator; empty: that of its Service. """

    operator_token: Path = Path("/var/run/secrets/orion.gpu/operator/token")
    """ The file with the token for the operator; the kubelet renews it. """

    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """ The kubelet's socket; the kubelet knows which container holds which slot. """

    recovery_seconds: float = Field(default=10.0, ge=0.1, le=3_600, allow_inf_nan=False)
    """ How long an unhealthy GPU must work again before new pods can get it; the time grows with each problem. """

    claim_seconds: float = Field(default=60.0, ge=0, le=3_600, allow_inf_nan=False)
    """ How long a GPU counts as advertised by another device plugin after the agent last saw such a device. """

    driver_memory_limits: bool = False
    """ Whether the driver, too, limits the device memory of containers whose slots have a limit (driver_limits/). """

    by_node: bool = False
    """ Whether a label of the node says which program gives its slots, the device plugin or the DRA driver. """

    handover_seconds: float = Field(default=10.0, ge=0.1, le=3_600, allow_inf_nan=False)
    """ How long nobody may have held a slot before the node changes hands. """

    @field_validator("policy")
    @classmethod
    def _over_the_default(cls, policy: PolicyChanges) -> PolicyChanges:
        policy.over(policy_words.DEFAULT)
        return policy

    @model_validator(mode="after")
    def _node(self) -> "AgentSettings":
        # Before the agent takes its root over, which removes clients of GPUs that this agent does not have.
        if self.node_name and not self.operator:
            raise ValueError(
                "--node-name makes this the agent of a cluster's node, but --operator is missing; give NAMESPACE/NAME "
                "of the operator's Service"
            )
        return self

    @model_validator(mode="after")
    def _turns(self) -> "AgentSettings":
        if self.longest_turn_ms is not None and self.longest_turn_ms < self.shortest_turn_ms:
            raise ValueError(
                f"the longest turn, {self.longest_turn_ms:g} ms, is below the shortest, {self.shortest_turn_ms:g} ms: "
                "raise the first or lower the second"
            )
        return self

    @property
    def serves_plugin(self) -> bool:
        """Whether a device plugin depends on this agent; the agent then follows changes of GPUs and configuration."""
        return bool(self.node_name) or self.configuration is not None

    @field_validator("metrics_address")
    @classmethod
    def _host_and_port(cls, address: str) -> str:
        _, _, port = address.rpartition(":")
        if address and not (port.isascii() and port.isdigit() and int(port) < 65_536 and ":" in address):
            raise ValueError("it must be HOST:PORT, with a port below 65536, or empty for no metrics")
        return address
