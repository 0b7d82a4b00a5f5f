"""The start options of a device plugin."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from orion.injection.program import node_name

KUBELET_FOLDER = Path("/var/lib/kubelet/device-plugins")
HOOK_FOLDER = Path("/var/lib/orion/hook")


class PluginSettings(BaseModel):
    """Each folder except `host` has the same path in the plugin as on the node, because the kubelet gets the path."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path = Path("/run/orion")
    """ The agent's directory. """

    kubelet_folder: Path = KUBELET_FOLDER
    hook_folder: Path = HOOK_FOLDER

    host: Path = Path("/")
    """ Where the node's root directory is mounted in the plugin, which searches it for device nodes and the driver. """

    agent_patience: float = Field(default=5.0, ge=0.1, le=25, allow_inf_nan=False)
    """ Seconds that a container's start waits for an agent that is being replaced; the kubelet's limit is 30. """

    configuration: Path | None = None
    node: str = Field(default_factory=node_name, min_length=1)
    by_node: bool = False
    """ Whether each node chooses between device plugin and DRA driver: the plugin waits until the agent names it. """

    metrics_address: str = Field(default="", pattern=r"^(.+:[0-9]{1,5})?$")
    """ HOST:PORT; empty: the plugin serves no metrics. """
