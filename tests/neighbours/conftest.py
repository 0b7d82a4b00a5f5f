"""Fixtures of the neighbours tier: the node tier's cluster with Orion, and real controllers of other projects on it."""

from collections.abc import Callable, Iterator

import pytest
from kubernetes import client

from testbed.cluster import Cluster
from testbed.neighbours import Controller, Neighbours
from testbed.orion import Orion
from tests.cluster.conftest import Kubectl
from tests.neighbours.workloads import Workloads
from tests.node.conftest import api, cluster, control_plane, kubeconfig_for, kubectl, namespace, node, orion, programs

__all__ = ["api", "cluster", "control_plane", "kubeconfig_for", "kubectl", "namespace", "node", "orion", "programs"]

Install = Callable[[Controller], Neighbours]


@pytest.fixture(scope="session")
def install(cluster: Cluster, orion: Orion) -> Iterator[Install]:
    """Installs a controller on the cluster, unless it is there already."""
    installed, there = Neighbours(cluster), set[str]()

    def start(controller: Controller) -> Neighbours:
        if controller.name not in there:
            if not (controller.binary.cached().is_file() and controller.rendered.is_file()):
                pytest.fail(f"{controller.name} is not built; `make neighbours` builds it")
            there.add(controller.name)
            installed.start(controller)
        return installed

    yield start
    installed.stop()


@pytest.fixture
def workloads(api: client.ApiClient, namespace: str, kubectl: Kubectl) -> Iterator[Workloads]:
    """The workloads of one namespace. At the end, no request of a controller has been refused in it."""
    made = Workloads(api, namespace, kubectl)
    yield made
    assert made.refusals() == []
