"""The start options of a DRA driver."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from orion.injection.program import node_name

KUBELET_FOLDER = Path("/var/lib/kubelet")
HOOK_FOLDER = Path("/var/lib/orion/dra-hook")
""" Not the device plugin's folder: each removes earlier versions there that it knows no container for. """
CDI_FOLDER = Path("/var/run/cdi")


class DriverSettings(BaseModel):
    """Each folder except `host` has the same path in the driver as on the node: kubelet and runtime get the paths."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path = Path("/run/orion")
    """ The agent's directory. """

    kubelet_folder: Path = KUBELET_FOLDER
    """ The kubelet's root directory, with the folders `plugins` and `plugins_registry`. """

    cdi_folder: Path = CDI_FOLDER
    """ A folder in which the container runtime looks for CDI files. """

    hook_folder: Path = HOOK_FOLDER

    host: Path = Path("/")
    """ Where the node's root directory is mounted in the driver, which searches it for device nodes and libraries. """

    agent_patience: float = Field(default=5.0, ge=0.1, le=40, allow_inf_nan=False)
    """ Seconds that a pod's start waits for an agent that is being replaced, if it may start without one. """

    slot_memory_mib: int = Field(default=512, ge=0, le=1 << 20)
    """ MiB of a GPU that each of its slots takes besides what claims can ask for: the contexts of its processes. """

    configuration: Path | None = None
    kubeconfig: Path | None = None
    node: str = Field(default_factory=node_name, min_length=1)
    by_node: bool = False
    """ Whether each node chooses between device plugin and DRA driver: the driver waits until the agent names it. """

    metrics_address: str = Field(default="", pattern=r"^(.+:[0-9]{1,5})?$")
    """ HOST:PORT; empty: the driver serves no metrics. """
