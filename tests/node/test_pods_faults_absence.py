"""Pods start and restart while the agent, the device plugin, the operator or the API server is away."""

import os
import signal

import pytest

from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import Orion
from tests.node.disturbed_pods import LIMIT, REPORT, Occupants, kubelet_log, registrations, wait_until_registered
from tests.node.gpu_tenants import share, training
from tests.waiting import eventually

pytestmark = pytest.mark.node


def test_failclosed_and_onnoagent_decide_which_containers_start_without_an_agent(
    computing: Occupants, orion: Orion, node: Node
) -> None:
    serve, train = computing.pods["serve"], computing.pods["train"]
    slot = serve.joined_client().slot
    for component in ("agent", "plugin"):
        orion.end(node, component)
    registered = registrations(orion, node)
    orion.begin_plugin(node)  # this plugin uses the snapshot that the agent sent to the earlier plugin
    wait_until_registered(orion, node, since=registered)
    serve.kill()
    computing.create(training("free", **REPORT))  # without an agent, a pod starts unmanaged by default
    free = computing.pods["free"]
    (process,) = free.processes()
    eventually(lambda: "the pod is failClosed" in computing.waits("serve"))
    orion.configure({"onNoAgent": "hold"})
    eventually(lambda: "onNoAgent hold" in orion.log(f"{node.name}-plugin"))
    computing.tenants.create(training("held", **REPORT))
    eventually(lambda: "onNoAgent is hold" in computing.waits("held"))
    for pod in (free, train):
        pod.computes()
    assert not serve.processes()
    assert not computing.seen("held").processes()
    orion.begin_agent(node)
    assert free.joined_client().process_id == process
    computing.begins_soon("held").joined_client()
    assert computing.begins_soon("serve").joined_client().slot == slot
    serve.is_granted(LIMIT)
    computing.compute()
    computing.books.settle()


def test_without_a_plugin_no_container_begins_and_no_slot_is_lost(
    computing: Occupants, orion: Orion, node: Node
) -> None:
    train, before = computing.pods["train"], computing.clients()
    orion.end(node, "plugin")
    eventually(lambda: set(orion.allocatable(node).values()) == {0})
    train.kill()
    pinned = training("pinned", **REPORT)
    pinned["spec"]["nodeName"] = node.name
    computing.tenants.create(training("patient", **REPORT), pinned)
    eventually(lambda: computing.tenants.pods()["pinned"].status.reason == "UnexpectedAdmissionError")
    eventually(lambda: "orion.gpu/be" in unschedulable(computing, "patient"))
    eventually(lambda: "has been stopped" in computing.waits("train"))
    assert not train.processes()
    orion.begin_plugin(node)
    computing.begun("patient")
    computing.begins_soon("train")
    again = computing.clients()
    assert again["serve"] == before["serve"]
    assert (again["train"].gpu, again["train"].slot) == (before["train"].gpu, before["train"].slot)
    train.is_granted(LIMIT)
    computing.compute()
    computing.books.settle()


def unschedulable(occupants: Occupants, name: str) -> str:
    """Return why a pod is not scheduled."""
    conditions = occupants.tenants.pods()[name].status.conditions or ()
    return next((each.message for each in conditions if each.reason == "Unschedulable"), "")


def test_slots_are_allocated_and_containers_begin_again_while_the_api_server_is_away(
    computing: Occupants, orion: Orion, cluster: Cluster, node: Node
) -> None:
    train, before = computing.pods["train"], computing.clients()
    plugin = orion.pids()[f"orion/{node.name}-plugin"]
    os.kill(plugin, signal.SIGSTOP)  # so that the kubelet's Allocate waits
    try:
        pod = training("new", **REPORT)
        pod["spec"]["automountServiceAccountToken"] = False  # without it the pod needs no API server
        computing.tenants.create(pod)
        new = computing.seen("new")
        eventually(lambda: f"{new.namespace}/{new.name}" in kubelet_log(node))
        cluster.control_plane.end("kube-apiserver")
    finally:
        os.kill(plugin, signal.SIGCONT)
    train.kill()
    new.joined_client()
    again = train.joined_client()
    assert (again.gpu, again.slot) == (before["train"].gpu, before["train"].slot)
    train.is_granted(LIMIT)
    computing.compute()
    cluster.control_plane.begin("kube-apiserver")
    cluster.control_plane.wait_until_ready()
    computing.books.settle()


def test_without_the_operator_pods_keep_their_grants_and_a_new_pod_gets_its_grant_later(
    computing: Occupants, orion: Orion, node: Node
) -> None:
    serve, train = computing.pods["serve"], computing.pods["train"]
    new = training("new", **REPORT)
    computing.tenants.create(share(new, memory={"limit": str(LIMIT)}))
    computing.wait_until_pinned(new)
    orion.end_operator()
    train.kill()
    computing.begins_soon("train").joined_client()
    train.is_granted(LIMIT)
    orion.end(node, "agent")
    orion.begin_agent(node)
    train.joined_client()  # the agent serves
    computing.create(new)
    computing.pods["new"].joined_client()
    computing.pods["new"].is_granted(0)  # nobody tells the agent what the new pod may do
    for pod in (serve, train):
        pod.is_granted(LIMIT)
    orion.begin_operator()
    computing.pods["new"].is_granted(LIMIT)
    computing.compute()
    computing.books.settle()
