"""Checks the GPUDevices and Events that an agent with the chart's role writes to a real API server."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orion.node_agent.api.client import AgentClient
from testbed.access import Access
from tests.cluster.agent_process import ROOT, AgentNode, ClusterView, machine, until_written
from tests.cluster.conftest import FakeNode
from tests.cluster.cut_proxy import CutProxy
from tests.cluster.serving_operator import ServingOperator
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


@pytest.fixture
def stopped_node(
    c_build: Path,
    operator: ServingOperator,
    namespace: str,
    agents_kubeconfig: Path,
    fake_node: FakeNode,
    view: ClusterView,
) -> Iterator[AgentNode]:
    with machine(c_build, operator, fake_node("a"), agents_kubeconfig, namespace, view) as made:
        yield made


@pytest.fixture
def node(stopped_node: AgentNode, view: ClusterView) -> AgentNode:
    stopped_node.start_agent()
    until_written(view, stopped_node)
    return stopped_node


def test_settings_for_labels_apply_to_a_node_that_has_them(
    stopped_node: AgentNode, view: ClusterView, tmp_path: Path
) -> None:
    configuration = tmp_path / "nodes.yaml"
    section = "{matchLabels: {pool: a, kubernetes.io/os: linux}, slots: {hp: 2, be: 3}}"
    configuration.write_text(f"{{version: v1, nodes: [{section}]}}")
    labels = {"pool": "a", "kubernetes.io/os": "linux"}
    view.core.patch_node(stopped_node.node, {"metadata": {"labels": labels}})
    stopped_node.start_agent("--configuration", str(configuration))
    slots = {"hp": {"total": 2, "held": 0}, "be": {"total": 3, "held": 0}}
    for uuid in stopped_node.uuids:
        eventually(lambda uuid=uuid: view.status(uuid).get("slots") == slots)  # type: ignore[misc]
    assert stopped_node.agent_log().count("cannot be read") == 0


def test_a_gpudevice_lists_the_held_slots_and_the_clients_of_its_gpu(node: AgentNode, view: ClusterView) -> None:
    uuid, other = node.uuids
    first = view.status(uuid)
    assert (first["uuid"], first["index"], first["health"], first["simulated"]) == (uuid, 0, "Healthy", True)
    assert first["slots"] == {"hp": {"total": 1, "held": 0}, "be": {"total": 8, "held": 0}}
    assert view.condition(uuid, "Ready") == ("True", "Advertised")
    assert view.condition(uuid, "HookInjected") == ("Unknown", "NoClients")
    at_rest = view.device(other)["metadata"]["resourceVersion"]

    view.pod("train", node.node, memory={"limit": "512Mi"}, compute={"request": 0.4})
    node.kubelet.give("train", (uuid, "be-3"), namespace=view.namespace)
    eventually(lambda: view.status(uuid)["slots"]["be"]["held"] == 1, what=node.agent_log)
    worker = node.start("be-3")

    def whole() -> dict[str, Any]:
        """The status with the client and with what the operator has sent about the pod, which may come after it."""
        found = view.status(uuid)
        return found if found.get("clientCount") == 1 and found["heldSlots"][0].get("share") else {}

    status = eventually(whole, what=node.agent_log)
    (slot,) = status["heldSlots"]
    reference = {"namespace": view.namespace, "name": "train", "container": "main"}
    assert slot["pod"] | reference == slot["pod"]
    assert (slot["name"], slot["share"], slot["generation"]) == ("be-3", "train", 1)
    assert slot["shareUid"] == view.share_uid("train")
    assert (slot["memoryLimit"], slot["computeRequest"]) == ("512Mi", 0.4)
    (row,) = status["clients"]
    assert (row["processId"], row["slot"], row["priority"], row["pod"]) == (worker.pid, "be-3", "be", slot["pod"])
    assert view.condition(uuid, "HookInjected") == ("True", "Joined")

    def used() -> dict[str, float]:
        worker.must("run 3 20000")
        return dict(view.status(uuid)["heldSlots"][0].get("usage") or {})

    usage = eventually(used, what=node.agent_log)
    assert usage.keys() >= {"due", "charged", "measured", "waited"}
    assert 0 < usage["measured"] <= usage["due"] <= 1

    worker.kill()
    eventually(lambda: view.status(uuid).get("clientCount") == 0)
    assert view.device(other)["metadata"]["resourceVersion"] == at_rest
    holder = f'container="main",gpu="{uuid}",namespace="{view.namespace}",pod="train",share="train",slot="be-3"'
    assert node.metrics()[f"orion_slot_holder{{{holder}}}"] == 1
    _, _, reported = (ROOT / "docs" / "metrics.md").read_text().partition("\n## In a cluster\n")
    documented = set(re.findall(r"^\| `(orion_\w+)`", reported, re.MULTILINE))
    assert documented - {name.partition("{")[0] for name in node.metrics()} == {"orion_gpu_advertised_by_another"}


def test_problems_of_a_pod_become_events_of_the_pod(node: AgentNode, view: ClusterView) -> None:
    uuid = node.uuids[0]
    view.pod("differs", node.node, "hp")
    view.pod("long", node.node)
    node.kubelet.give("differs", (uuid, "be-0"), namespace=view.namespace)
    node.kubelet.give("long", (uuid, "be-1"), namespace=view.namespace)
    eventually(lambda: "RoleDiffers" in view.events("differs", view.namespace), what=node.agent_log)
    worker = node.start("be-1")

    def reported() -> str:
        worker.must("run 3 20000")
        return view.events("long", view.namespace).get("LongKernels", "")

    note = eventually(reported, what=node.agent_log)
    assert note.startswith(f"process {worker.pid} (client_scripted) on {uuid} runs kernels of ")
    eventually(lambda: view.condition(uuid, "Degraded")[0] == "True")


def test_a_gpu_with_mig_is_not_advertised_and_its_condition_says_why(
    stopped_node: AgentNode, view: ClusterView
) -> None:
    node = stopped_node
    node.make_gpus_again(ORION_SIM_MIG="1")
    node.start_agent()
    until_written(view, node)
    eventually(lambda: view.condition(node.uuids[1], "Ready") == ("False", "MIGEnabled"), what=node.agent_log)
    eventually(lambda: "MIG is enabled" in view.events(node.node).get("GPUNotAdvertised", ""))
    assert view.condition(node.uuids[0], "Ready") == ("True", "Advertised")


def test_an_administrator_cordons_a_gpu_and_requests_a_mode(node: AgentNode, view: ClusterView) -> None:
    uuid = node.uuids[0]

    def advertised() -> tuple[bool, bool, str]:
        with AgentClient(node.root) as administrator:
            device = next(each for each in next(administrator.watch_devices()).devices if each.uuid == uuid)
        return device.healthy, device.cordoned, device.reason

    view.change(uuid, cordon=True)
    eventually(lambda: advertised() == (True, True, "Cordoned"), what=node.agent_log)
    eventually(lambda: view.condition(uuid, "Ready") == ("False", "Cordoned"))
    eventually(lambda: "GPUCordoned" in view.events(uuid.lower()))
    view.change(uuid, cordon=False, mode="mps")
    eventually(lambda: advertised() == (True, False, ""))
    eventually(lambda: view.condition(uuid, "Ready") == ("True", "Advertised"))
    eventually(lambda: view.condition(uuid, "ModePending") == ("True", "NotAvailable"))
    assert view.status(uuid)["mode"] == "timeslice"
    eventually(lambda: "no MPS daemon runs on the node" in view.events(uuid.lower()).get("ModeNotAvailable", ""))
    eventually(lambda: view.status(uuid)["observedGeneration"] == view.device(uuid)["metadata"]["generation"])


def test_a_failed_gpu_is_unhealthy_until_it_has_recovered(node: AgentNode, view: ClusterView) -> None:
    uuid, other = node.uuids
    node.simulated("lose", "0")
    eventually(lambda: view.status(uuid)["health"] == "Unhealthy", what=node.agent_log)
    assert view.condition(uuid, "Ready") == ("False", "GPULost")
    eventually(lambda: "GPUUnhealthy" in view.events(uuid.lower()))
    assert node.metrics()[f'orion_gpu_healthy{{gpu="{uuid}"}}'] == 0
    assert node.metrics()[f'orion_gpu_healthy{{gpu="{other}"}}'] == 1
    node.simulated("restore", "0")
    eventually(lambda: view.condition(uuid, "Ready") == ("True", "Advertised"))
    eventually(lambda: "GPUReady" in view.events(uuid.lower()))
    assert view.status(other)["health"] == "Healthy"
    node.simulated("xid", other, "79")
    eventually(lambda: view.condition(other, "Ready")[1] == "Xid79" or "GPUUnhealthy" in view.events(other.lower()))


def test_a_process_without_the_hook_is_reported(node: AgentNode, view: ClusterView) -> None:
    uuid = node.uuids[0]
    unmanaged = node.start_in(None)
    unmanaged.must("init 0")
    eventually(lambda: view.condition(uuid, "HookInjected") == ("False", "Unmanaged"), what=node.agent_log)
    status = view.status(uuid)
    assert status["unmanagedProcessCount"] == 1
    assert status["unmanaged"] == [{"processId": unmanaged.pid, "command": "client_scripted"}]
    note = eventually(lambda: view.events(node.node).get("ProcessWithoutHook", ""))
    assert note.startswith(f"process {unmanaged.pid} (client_scripted) uses {uuid}")
    assert node.metrics()[f'orion_gpu_unmanaged_processes{{gpu="{uuid}"}}'] == 1
    unmanaged.kill()
    eventually(lambda: view.status(uuid)["unmanagedProcessCount"] == 0)
    assert node.metrics()[f'orion_gpu_unmanaged_processes{{gpu="{uuid}"}}'] == 0


def test_a_client_that_is_stopped_over_a_restart_of_the_agent_has_the_hook(node: AgentNode, view: ClusterView) -> None:
    uuid = node.uuids[0]
    stopped = node.start("be-3")
    stopped.must("init 0")
    node.until_joined(stopped)
    os.kill(stopped.pid, signal.SIGSTOP)
    node.kill_agent()
    node.start_agent()
    unmanaged = node.start_in(None)
    unmanaged.must("init 0")
    eventually(lambda: view.status(uuid)["unmanagedProcessCount"] >= 1, what=node.agent_log)
    only = [{"processId": unmanaged.pid, "command": "client_scripted"}]
    assert view.status(uuid)["unmanaged"] == only
    os.kill(stopped.pid, signal.SIGCONT)
    node.until_joined(stopped)
    eventually(lambda: (view.status(uuid)["clientCount"], view.status(uuid)["unmanaged"]) == (1, only))


def test_a_gpu_of_another_plugin_is_advertised_only_if_coexist_is_set(
    stopped_node: AgentNode, view: ClusterView, tmp_path: Path
) -> None:
    node, configuration = stopped_node, tmp_path / "node.yaml"
    uuid, other = node.uuids
    configuration.write_text("version: v1\n")
    node.start_agent("--configuration", str(configuration))
    until_written(view, node)
    node.kubelet.advertised = {"nvidia.com/gpu": [f"{uuid}::0", f"{uuid}::1"], "orion.gpu/be": [f"{other}::be-0"]}
    eventually(lambda: view.condition(uuid, "Ready") == ("False", "AdvertisedByAnother"), what=node.agent_log)
    assert view.status(uuid)["health"] == "Unhealthy"
    assert view.condition(other, "Ready") == ("True", "Advertised")
    eventually(lambda: "nvidia.com/gpu" in view.events(node.node).get("GPUNotAdvertised", ""))
    assert node.metrics()[f'orion_gpu_advertised_by_another{{gpu="{uuid}",resource="nvidia.com/gpu"}}'] == 1
    configuration.write_text("version: v1\ncoexist: true\n")
    eventually(lambda: view.condition(uuid, "Ready") == ("True", "Advertised"))
    configuration.write_text("version: v1\ncoexist: false\n")
    eventually(lambda: view.condition(uuid, "Ready") == ("False", "AdvertisedByAnother"))
    node.kubelet.advertised = {}
    eventually(lambda: view.condition(uuid, "Ready") == ("True", "Advertised"))


def test_changes_during_an_outage_of_the_api_server_are_written_afterwards(
    c_build: Path,
    operator: ServingOperator,
    namespace: str,
    agents_kubeconfig: Path,
    control_plane: Access,
    fake_node: FakeNode,
    view: ClusterView,
    tmp_path: Path,
) -> None:
    with CutProxy(control_plane.url) as proxy:
        through = proxy.kubeconfig(agents_kubeconfig, tmp_path / "through.kubeconfig")
        with machine(c_build, operator, fake_node("a"), through, namespace, view, gpus=1) as node:
            node.start_agent()
            until_written(view, node)
            proxy.cut()
            worker = node.start("be-0")
            node.simulated("lose", "0")
            metric = f'orion_gpu_healthy{{gpu="{node.uuids[0]}"}}'
            eventually(lambda: node.metrics()[metric] == 0)
            assert view.status(node.uuids[0])["health"] == "Healthy"
            eventually(lambda: node.metrics().get("orion_cluster_device_failures_total", 0) >= 1)
            proxy.fix()
            eventually(lambda: view.status(node.uuids[0])["health"] == "Unhealthy", what=node.agent_log)
            eventually(lambda: view.status(node.uuids[0])["clientCount"] == 1)
            worker.kill()


def test_a_gpudevice_belongs_to_one_agent_until_its_gpu_is_gone_or_the_object_is_deleted(
    node: AgentNode,
    view: ClusterView,
    c_build: Path,
    operator: ServingOperator,
    namespace: str,
    agents_kubeconfig: Path,
    fake_node: FakeNode,
) -> None:
    first, second = node.uuids
    with machine(c_build, operator, fake_node("b"), agents_kubeconfig, namespace, view) as elsewhere:
        assert elsewhere.uuids == node.uuids
        elsewhere.start_agent()
        eventually(lambda: "delete that GPUDevice" in view.events(elsewhere.node).get("GPUElsewhere", ""))
        assert [view.status(uuid)["node"] for uuid in node.uuids] == [node.node] * 2
        node.kill_agent()
        node.make_gpus_again(ORION_SIM_GPUS="1")
        node.start_agent()
        eventually(lambda: view.status(second).get("node") == elsewhere.node, what=elsewhere.agent_log())
        eventually(lambda: view.status(second)["health"] == "Healthy")
        assert view.status(first)["node"] == node.node
        view.delete(first)
        eventually(lambda: view.status(first).get("health") == "Healthy")
