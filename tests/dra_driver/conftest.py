"""A node for each test: an agent and a driver as processes; stand-ins for the kubelet and the API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dra_driver.driver_node import DriverNode
from tests.dra_driver.stand_in_api_server import claim, result

__all__ = ["DriverNode", "claim", "result"]


@pytest.fixture
def bare_node(socket_folder: Path) -> Iterator[DriverNode]:
    """A node on which nothing runs yet."""
    node = DriverNode(socket_folder)
    yield node
    node.close()


@pytest.fixture
def node(bare_node: DriverNode) -> DriverNode:
    """A node with an agent of two GPUs with 1 hp and 3 be slots, and a driver that the kubelet has found."""
    bare_node.begin_agent()
    bare_node.begin_driver()
    return bare_node
