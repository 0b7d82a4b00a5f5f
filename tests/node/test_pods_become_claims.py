"""Pods that ask for slots as with a device plugin get them by ResourceClaims, with the amounts of their GPUShares."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from testbed.node import Node
from testbed.orion import Orion
from tests.cluster.conftest import Kubectl
from tests.node.claimed_gpus import DRA, Claims, claiming, held, until_nothing_is_left
from tests.node.gpu_tenants import GROUP, GpuNode, Tenants, deployed, serving, share, training
from tests.node.rolling_server import MINUTES, Rollout, server
from tests.waiting import eventually

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("claiming_webhook", "claims")]

MIB = 1 << 20


@pytest.fixture
def templates(api: client.ApiClient, namespace: str) -> Callable[[], list[str]]:
    """The names of the namespace's templates."""
    objects = client.CustomObjectsApi(api)

    def names() -> list[str]:
        found: Any = objects.list_namespaced_custom_object(**DRA, namespace=namespace, plural="resourceclaimtemplates")
        return [each["metadata"]["name"] for each in found["items"]]

    return names


def reason(tenants: Tenants, name: str) -> str:
    """Why a pod is not scheduled; empty: it is."""
    conditions = tenants.pods()[name].status.conditions or []
    return next((each.message or "" for each in conditions if each.type == "PodScheduled" and each.reason), "")


def explained(pod: str, namespace: str, orion: Orion) -> str:
    """What `orion explain pod` says of a pod."""
    command = [sys.executable, "-m", "orion.cli", "explain", "pod", pod, "--namespace", namespace]
    environment = {**os.environ, "KUBECONFIG": str(orion.access.kubeconfig)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_examples_pods_run_with_the_grants_of_their_shares(
    tenants: Tenants, gpus: GpuNode, node: Node, templates: Callable[[], list[str]]
) -> None:
    serve, train = serving("serve"), training("train", memory=MIB)
    memory = {"request": "600Mi", "limit": "700Mi", "oversubscribe": "park"}
    tenants.create(
        share(serve, compute={"request": 0.8}),
        share(train, compute={"request": 0.1, "limit": 0.5}, memory=memory),
        serve,
        train,
    )
    tenants.begun("serve")
    tenants.begun("train")
    slots = {pods[0]: device for device, pods in held(gpus).items()}
    assert slots["serve"].endswith("::hp-0")
    slot = gpus.slot(slots["train"])
    assert (slot.request, slot.limit, slot.memory_limit_bytes) == (0.1, 0.5, 700 * MIB)
    assert slot.claim.memory_bytes == 600 * MIB
    assert len(templates()) == 2
    rows = {row["pod"]["name"]: row for status in gpus.devices().values() for row in status.get("heldSlots") or ()}
    assert {name: row["share"] for name, row in rows.items()} == {"serve": "serve", "train": "train"}
    tenants.delete("serve", "train")
    until_nothing_is_left(gpus, node)


@pytest.mark.timeout(1800)
def test_a_rolling_update_of_an_hp_pod_finishes_although_all_hp_slots_are_taken(
    tenants: Tenants, gpus: GpuNode, node: Node, kubectl: Kubectl, api: client.ApiClient
) -> None:
    tenants.create(serving("neighbour"), server())
    tenants.begun("neighbour")
    rollout = Rollout(tenants, kubectl, node)
    before = rollout.finishes()
    tenants.create(serving("outsider"))
    rollout.restart()
    assert rollout.finishes() != before
    assert not tenants.pods()["outsider"].spec.node_name
    eventually(lambda: rollout.label() is None, seconds=MINUTES)
    assert not tenants.pods()["outsider"].spec.node_name
    client.AppsV1Api(api).delete_namespaced_deployment("serve", tenants.namespace)
    tenants.begun("outsider")  # the node has its two hp slots again, and no third
    tenants.delete("neighbour", "outsider")
    until_nothing_is_left(gpus, node)


def test_a_changed_limit_reaches_a_running_pod(
    tenants: Tenants, gpus: GpuNode, node: Node, api: client.ApiClient
) -> None:
    train = training(memory=MIB)
    tenants.create(share(train, memory={"limit": "700Mi"}), train)
    tenants.begun("train")
    ((device, _),) = held(gpus).items()
    client.CustomObjectsApi(api).patch_namespaced_custom_object(
        **GROUP,
        namespace=tenants.namespace,
        plural="gpushares",
        name="train",
        body={"spec": {"memory": {"limit": "900Mi"}}},
    )
    eventually(lambda: gpus.slot(device).memory_limit_bytes == 900 * MIB)
    assert gpus.slot(device).claim.memory_bytes == 700 * MIB
    tenants.delete("train")
    until_nothing_is_left(gpus, node)


def test_what_a_share_requests_and_no_gpu_has_left_keeps_a_pod_pending(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node
) -> None:
    pods = {name: training(name, memory=MIB) for name in ("a", "b", "c")}
    for name, request in (("a", 0.6), ("b", 0.6), ("c", 0.5)):  # two GPUs
        tenants.create(share(pods[name], compute={"request": request}))
    tenants.create(pods["a"])
    tenants.begun("a")
    tenants.create(pods["b"])
    tenants.begun("b")
    tenants.create(pods["c"])
    eventually(lambda: "cannot allocate all claims" in reason(tenants, "c"), what="the third waits")
    assert "time: 0.5 asked, 0.4 of 1 left" in explained("c", tenants.namespace, claims.orion)
    tenants.delete("a")
    tenants.begun("c")
    tenants.delete("b", "c")
    until_nothing_is_left(gpus, node)


def test_the_pods_of_a_deployment_have_one_template_which_comes_back(
    tenants: Tenants, gpus: GpuNode, node: Node, api: client.ApiClient, templates: Callable[[], list[str]]
) -> None:
    tenants.create(deployed(training("many", memory=MIB), 3))
    tenants.all_begun("many", 3)
    (name,) = templates()
    client.CustomObjectsApi(api).delete_namespaced_custom_object(
        **DRA, namespace=tenants.namespace, plural="resourceclaimtemplates", name=name
    )
    tenants.scale("many", 4)
    tenants.all_begun("many", 4)
    assert templates() == [name]
    client.AppsV1Api(api).delete_namespaced_deployment("many", tenants.namespace)
    until_nothing_is_left(gpus, node)


def test_a_pod_with_two_gpus_gets_two_different_ones(tenants: Tenants, gpus: GpuNode, node: Node) -> None:
    wide = training("wide", memory=MIB)
    limits = wide["spec"]["containers"][0]["resources"]["limits"]
    (resource,) = [each for each in limits if "gpu" in each]
    limits[resource] = "2"
    tenants.create(wide)
    tenants.begun("wide")
    assert len({device.partition("::")[0] for device in held(gpus)}) == 2
    tenants.delete("wide")
    until_nothing_is_left(gpus, node)


def test_a_claim_by_hand_that_the_pod_calls_orion_is_governed(
    tenants: Tenants, claims: Claims, gpus: GpuNode, node: Node
) -> None:
    train = training(memory=MIB)
    claim, pod = claiming(train, "be", memory="600Mi")
    pod["metadata"]["annotations"] = {"orion/priority": "be"}
    pod["spec"]["resourceClaims"][0]["name"] = "orion"
    pod["spec"]["containers"][0]["resources"]["claims"][0]["name"] = "orion"
    claims.create(claim)
    tenants.create(share(train, memory={"limit": "800Mi"}, compute={"limit": 0.4}), pod)
    tenants.begun("train")
    ((device, _),) = held(gpus).items()
    eventually(lambda: (gpus.slot(device).memory_limit_bytes, gpus.slot(device).limit) == (800 * MIB, 0.4))
    tenants.delete("train")
    claims.delete("train")
    until_nothing_is_left(gpus, node)
