"""Fixtures: parts of a cluster with a real node. A conftest that imports them must define a fixture `cluster`."""

import pytest

from testbed.access import Access
from testbed.cluster import Cluster
from testbed.node import Node


@pytest.fixture(scope="session")
def control_plane(cluster: Cluster) -> Access:
    """Access to the cluster of this run."""
    return cluster.access


@pytest.fixture(scope="session")
def node(cluster: Cluster) -> Node:
    """The node of the cluster, such as `node-1`."""
    return cluster.nodes["node-1"]
