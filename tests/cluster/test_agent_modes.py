"""A GPUDevice with `spec.mode: mps`, on simulated GPUs. API server, agent, `orion mps-daemon` and hook are real."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.node_agent.mps.folder import MpsFolder
from tests.cluster.agent_process import AgentNode, ClusterView, machine, until_written
from tests.cluster.conftest import FakeNode
from tests.cluster.serving_operator import ServingOperator
from tests.hook.scripted_client import Client
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(
    c_build: Path,
    operator: ServingOperator,
    namespace: str,
    agents_kubeconfig: Path,
    fake_node: FakeNode,
    view: ClusterView,
) -> Iterator[AgentNode]:
    with machine(c_build, operator, fake_node("a"), agents_kubeconfig, namespace, view) as made:
        made.start_agent()
        until_written(view, made)
        yield made


@pytest.fixture
def mps_daemon(node: AgentNode) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "orion.cli", "mps-daemon", "--root", str(node.root)]
    with (node.folder / "mps.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        eventually(MpsFolder(node.root).daemon_lives)
        yield process
        process.terminate()
        process.wait(60)


def begun(node: AgentNode, slot: str) -> Client:
    """Start a client with the mounts and variables that the device plugin gives to a container of the first GPU."""
    folder = MpsFolder(node.root).clients(node.uuids[0])
    made = node.start_in(node.client_root(slot), CUDA_MPS_PIPE_DIRECTORY=str(folder))
    made.must("init 0")
    made.must("run 1 100")
    return made


def shares(node: AgentNode, process: Client) -> bool:
    shown = node.shown(process)
    return shown is not None and shown.shares_context


def test_a_mode_changes_when_the_gpu_has_no_clients(
    node: AgentNode, view: ClusterView, mps_daemon: "subprocess.Popen[bytes]"
) -> None:
    uuid, other = node.uuids
    view.change(uuid, mode="mps")
    eventually(lambda: view.status(uuid)["mode"] == "mps", what=node.agent_log)
    eventually(lambda: view.condition(uuid, "ModePending") == ("False", "InMode"))
    eventually(lambda: view.condition(uuid, "Ready") == ("True", "Advertised"))
    assert view.status(other)["mode"] == "timeslice"

    view.pod("train", node.node)
    node.kubelet.give("train", (uuid, "be-0"), namespace=view.namespace)
    eventually(lambda: view.status(uuid)["slots"]["be"]["held"] == 1, what=node.agent_log)
    worker = begun(node, "be-0")
    eventually(lambda: shares(node, worker), what=node.agent_log)

    view.change(uuid, mode="timeslice")
    eventually(lambda: view.condition(uuid, "ModePending") == ("True", "ClientsPresent"))
    eventually(lambda: f"now: pod {view.namespace}/train" in view.events(uuid.lower()).get("ModeClientsPresent", ""))
    assert view.status(uuid)["mode"] == "mps"
    worker.must("run 1 100")
    worker.kill()
    view.core.delete_namespaced_pod("train", view.namespace, grace_period_seconds=0)
    node.kubelet.forget_all()
    eventually(lambda: view.status(uuid)["mode"] == "timeslice", what=node.agent_log)
    eventually(lambda: view.condition(uuid, "ModePending") == ("False", "InMode"))
    assert not shares(node, begun(node, "be-1"))


def test_after_the_end_of_the_mps_daemon_the_gpu_is_closed_until_its_clients_have_ended(
    node: AgentNode, view: ClusterView, mps_daemon: "subprocess.Popen[bytes]"
) -> None:
    uuid = node.uuids[0]
    view.change(uuid, mode="mps")
    eventually(lambda: view.status(uuid)["mode"] == "mps", what=node.agent_log)
    workers = [begun(node, "be-0"), begun(node, "be-1")]
    eventually(lambda: all(shares(node, worker) for worker in workers), what=node.agent_log)
    mps_daemon.terminate()
    mps_daemon.wait(60)
    eventually(lambda: view.condition(uuid, "ModePending") == ("True", "NotAvailable"))
    eventually(lambda: view.condition(uuid, "Ready") == ("False", "ModeNotAvailable"))
    assert view.status(uuid)["mode"] == "timeslice"

    def lost() -> bool:
        for worker in workers:
            worker.do("run 1 100")
        return view.condition(uuid, "Degraded") == ("True", "SharedFault")

    eventually(lost, what=node.agent_log)
    for worker in workers:
        worker.kill()
    # Without clients, the GPU opens again in mode timeslice, because mode mps is not available.
    eventually(lambda: view.condition(uuid, "Ready") == ("True", "Advertised"), what=node.agent_log)
    assert view.condition(uuid, "ModePending") == ("True", "NotAvailable")
