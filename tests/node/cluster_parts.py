"""Fixtures: parts of a cluster with a real node. Whoever imports them has a fixture `cluster` of his own."""

import pytest

from testbed.access import Access
from testbed.cluster import Cluster
from testbed.node import Node


@pytest.fixture(scope="session")
def control_plane(cluster: Cluster) -> Access:
    """The way into the cluster of this run."""
    return cluster.access


@pytest.fixture(scope="session")
def node(cluster: Cluster) -> Node:
    """The node that is always there: `node.run`, `node.spawn`, `node.import_image`, `node.restart("kubelet")`."""
    return cluster.nodes["node-1"]
