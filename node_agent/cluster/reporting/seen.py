"""The state of one GPU at one moment, collected from all parts of the agent; a GPUDevice's status is made from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from orion.crds.allocation import Giver
from orion.crds.device import GPUDeviceSpec
from orion.crds.policy import Mode
from orion.node_agent.advertising.advertising import Verdict
from orion.node_agent.clients.client import ClientKey
from orion.node_agent.cluster.reporting.client_ratios import Ratios
from orion.node_agent.cluster.reporting.unmanaged import Found
from orion.node_agent.cluster.state import GpuState
from orion.node_agent.mps.pending import Pending
from orion.node_agent.snapshots import GpuView


@dataclass(frozen=True)
class Seen:
    """The input of a GPUDevice's status."""

    node: str
    spec: GPUDeviceSpec
    generation: int | None
    view: GpuView
    state: GpuState
    verdict: Verdict
    """ Whether new pods can get slots of the GPU, and if not, why (advertising.py). """
    hp_busy_ratio: float
    unmanaged: tuple[Found, ...]
    mode: Mode
    """ The mode of a process that starts now. """
    mode_pending: Pending | None
    """ Why `mode` is not the requested mode; None: `mode` is the requested mode. """
    ratios: Mapping[ClientKey, Ratios]
    agent_version: str
    giver: Giver | None = None
    """ The program that gives the GPU's slots, where each node chooses; None: not known, or there is no choice. """
