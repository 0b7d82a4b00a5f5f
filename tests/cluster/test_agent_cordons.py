"""GPUs that people have cordoned stay cordoned under a restarted agent, with and without the API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.node_agent.api.client import AgentClient
from testbed.access import Access
from tests.cluster.agent_process import AgentNode, ClusterView, machine, until_written
from tests.cluster.conftest import FakeNode
from tests.cluster.cut_proxy import CutProxy
from tests.cluster.serving_operator import ServingOperator
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def proxy(control_plane: Access) -> Iterator[CutProxy]:
    with CutProxy(control_plane.url) as made:
        yield made


def closed(node: AgentNode) -> list[bool]:
    """Whether each GPU is cordoned, in the first list that a device plugin gets."""
    with AgentClient(node.root) as administrator:
        devices = {each.uuid: each for each in next(administrator.watch_devices()).devices}
    return [devices[uuid].cordoned for uuid in node.uuids]


def test_an_agent_that_starts_without_the_api_server_uncordons_no_gpu(
    c_build: Path,
    operator: ServingOperator,
    namespace: str,
    agents_kubeconfig: Path,
    fake_node: FakeNode,
    view: ClusterView,
    proxy: CutProxy,
    tmp_path: Path,
) -> None:
    through = proxy.kubeconfig(agents_kubeconfig, tmp_path / "through.kubeconfig")
    with machine(c_build, operator, fake_node("a"), through, namespace, view) as node:
        node.start_agent()
        until_written(view, node)
        view.change(node.uuids[0], cordon=True)
        eventually(lambda: closed(node) == [True, False], what=node.agent_log())
        node.kill_agent()
        proxy.cut()
        node.start_agent()
        assert closed(node) == [True, False]
        view.change(node.uuids[0], cordon=False)
        proxy.fix()
        eventually(lambda: closed(node) == [False, False], what=node.agent_log())
