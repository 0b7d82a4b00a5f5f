"""Fixtures for tests of the chart on a cluster: a cluster with one node, and the images that the releases need.

All tests of this folder share one cluster, because an installation takes most of a minute. The tests run in order, and
each finds the state that the previous test left. The cluster ends after the last test of this folder, before other
tests start their clusters.
"""

import contextlib
import tempfile
from pathlib import Path

import pytest
from kubernetes import client

from testbed import example_image
from testbed.access import Access
from testbed.cluster import Cluster
from testbed.node import Node
from testbed.release import Release, image_name
from tests.cluster.conftest import Kubectl, api, kubectl_as, programs
from tests.node.cluster_parts import control_plane, node
from tests.node.gpu_tenants import GpuNode
from tools import image

__all__ = ["api", "control_plane", "node", "programs"]

NEWER = "newer"
""" The tag of an Orion with another version of hook and layout. """

HERE = Path(__file__).parent
_ending = contextlib.ExitStack()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the cluster after the last test of this folder."""
    if nextitem is None or HERE not in nextitem.path.parents:
        _ending.close()


def say(line: str) -> None:
    """Log the progress of builds, so that pytest shows it if a test fails."""
    print(line, flush=True)


@pytest.fixture(scope="session")
def images() -> dict[str, Path]:
    """Archives by tag: this checkout's image, with the name in the chart's values, and one of another version."""
    return {
        "": image.build(say, name=image_name()),
        NEWER: image.build(say, image.NEWER, name=image_name(NEWER)),
    }


@pytest.fixture(scope="session")
def cluster(programs: dict[str, Path], images: dict[str, Path]) -> Cluster:
    """A control plane with one node, `node-1`, which has the images."""
    folder = Path(_ending.enter_context(tempfile.TemporaryDirectory(prefix="orion-chart-")))
    running = _ending.enter_context(Cluster(folder / "cluster", programs, ["node-1"]))
    equip(running.nodes["node-1"], images)
    return running


def equip(node: Node, images: dict[str, Path]) -> None:
    """Load the images of Orion and of the examples into a node."""
    for archive in images.values():
        node.import_image(archive)
    with tempfile.TemporaryDirectory() as folder:
        node.import_image(example_image.example().write(Path(folder) / "example.tar"))


@pytest.fixture(scope="session")
def gpus(node: Node, api: client.ApiClient) -> GpuNode:
    """The node's slots, as the agent and the API server report them."""
    return GpuNode(node, api)


@pytest.fixture(scope="session")
def release(control_plane: Access) -> Release:
    """The release `orion`; the order of the tests decides whether it is installed."""
    return Release(control_plane)


@pytest.fixture(scope="session")
def kubectl(programs: dict[str, Path], control_plane: Access) -> Kubectl:
    """Runs kubectl as the administrator; `kubectl_as` says how."""
    return kubectl_as(programs["kubectl"], control_plane.kubeconfig)
