"""All that is known of one GPU at one moment, from all over the agent: what a GPUDevice's status is made of."""

from collections.abc import Mapping
from dataclasses import dataclass

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
    """All that a status is made of."""

    node: str
    spec: GPUDeviceSpec
    generation: int | None
    view: GpuView
    state: GpuState
    verdict: Verdict
    """ Whether pods may come to it, all things considered. """
    hp_busy_ratio: float
    unmanaged: tuple[Found, ...]
    mode: Mode
    """ Of a process that starts now. """
    mode_pending: Pending | None
    """ Why it is not the mode that is wanted. """
    ratios: Mapping[ClientKey, Ratios]
    agent_version: str
