"""What the parts of an agent in a cluster work with."""

from dataclasses import dataclass

from orion.api_server.requests import ApiServer
from orion.node_agent.agent import Agent
from orion.node_agent.cluster.pod_resources import PodResources
from orion.node_agent.cluster.state import ClusterState


@dataclass(frozen=True)
class Context:
    """What the parts work with."""

    agent: Agent
    node: str
    server: ApiServer
    state: ClusterState
    pod_resources: PodResources
