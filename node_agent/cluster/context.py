"""The objects that every part of an agent in a cluster needs."""

from dataclasses import dataclass

from orion.api_server.requests import ApiServer
from orion.node_agent.agent import Agent
from orion.node_agent.cluster.pod_resources import PodResources
from orion.node_agent.cluster.state import ClusterState


@dataclass(frozen=True)
class Context:
    """The objects that every part of an agent in a cluster needs."""

    agent: Agent
    node: str
    server: ApiServer
    state: ClusterState
    pod_resources: PodResources
