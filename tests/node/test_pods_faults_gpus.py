"""GPUs that become unhealthy, are cordoned or are advertised twice; and pods with several containers."""

from collections.abc import Callable

import pytest
from kubernetes import client

from testbed.node import Node
from testbed.orion import Orion
from tests.node.another_plugin import RESOURCE as ANOTHER
from tests.node.another_plugin import AnotherPlugin
from tests.node.disturbed_pods import LIMIT, REPORT, Occupants
from tests.node.fake_dra_driver import DRIVER, FakeDraDriver
from tests.node.gpu_tenants import main_container, training
from tests.node.shell_pods import shell_pod
from tests.waiting import eventually

pytestmark = pytest.mark.node


def test_the_slots_of_an_unhealthy_gpu_are_gone_until_it_is_healthy(
    computing: Occupants, orion: Orion, node: Node, lose: Callable[[str, str], None]
) -> None:
    before, advertised = computing.clients(), orion.allocatable(node)
    unhealthy = before["train"].gpu
    assert unhealthy != before["serve"].gpu  # a be pod gets the GPU without an hp pod
    lose("lose", unhealthy)
    eventually(lambda: orion.allocatable(node) == {name: count // 2 for name, count in advertised.items()})
    eventually(lambda: computing.pods["train"].printed("error"))
    computing.books.settle()
    computing.create(training("new", **REPORT))
    clients = {name: computing.pods[name].joined_client() for name in ("serve", "new")}
    assert clients["serve"] == before["serve"]
    assert clients["new"].gpu == before["serve"].gpu
    lose("restore", unhealthy)
    eventually(lambda: orion.allocatable(node) == advertised)
    computing.tenants.delete("train")  # the kubelet waits longer after each failed attempt
    computing.create(training("train", **REPORT))
    assert computing.clients()["train"].gpu == unhealthy
    computing.compute()
    computing.books.settle()


def test_a_cordoned_gpu_gets_no_new_pods_and_keeps_its_pods(
    computing: Occupants, orion: Orion, node: Node, cordon: Callable[[str, bool], None]
) -> None:
    before, advertised = computing.clients(), orion.allocatable(node)
    train, closed = computing.pods["train"], before["train"].gpu
    cordon(closed, True)
    eventually(
        lambda: orion.allocatable(node) == {"orion.gpu/hp": 1, "orion.gpu/be": advertised["orion.gpu/be"] // 2 + 1}
    )
    train.kill()
    computing.create(training("new", **REPORT))
    clients = computing.clients()
    assert (clients["train"].gpu, clients["train"].slot) == (closed, before["train"].slot)
    train.is_granted(LIMIT)
    assert clients["new"].gpu != closed
    computing.books.settle()
    cordon(closed, False)
    eventually(lambda: orion.allocatable(node) == advertised)
    computing.compute()
    computing.books.settle()


def test_slots_of_a_gpu_of_another_plugin_are_advertised_only_with_coexist(
    occupants: Occupants, orion: Orion, node: Node
) -> None:
    advertised = orion.allocatable(node)
    (uuid, *_) = occupants.gpus.devices()
    with AnotherPlugin(node, [uuid]):
        eventually(lambda: orion.allocatable(node) == {name: count // 2 for name, count in advertised.items()})
        eventually(lambda: ANOTHER in occupants.gpus.condition(uuid, "Ready")["message"])
        occupants.books.settle()
        orion.configure({"coexist": True})
        eventually(lambda: orion.allocatable(node) == advertised)
        orion.configure({})
        eventually(lambda: orion.allocatable(node) != advertised)
    eventually(lambda: orion.allocatable(node) == advertised)
    occupants.books.settle()


def test_a_gpu_that_a_dra_driver_gave_to_a_pod_gets_no_further_pods(
    occupants: Occupants, orion: Orion, node: Node, api: client.ApiClient
) -> None:
    advertised = orion.allocatable(node)
    given = next(gpu for gpu in occupants.gpus.snapshot().gpus if gpu.index == 1)
    with FakeDraDriver(api, node, "gpu-1") as driver:
        tenants = occupants.tenants
        pod = shell_pod("theirs", "sleep 600", {"resources": {"claims": [{"name": "gpu"}]}})
        pod["spec"] |= driver.claim(tenants.namespace, "theirs")
        tenants.create(pod)
        eventually(lambda: orion.allocatable(node) == {name: count // 2 for name, count in advertised.items()})
        eventually(lambda: DRIVER in occupants.gpus.condition(given.uuid, "Ready")["message"])
        occupants.books.settle()
        tenants.delete("theirs")
    eventually(lambda: orion.allocatable(node) == advertised)
    occupants.books.settle()


def test_two_containers_of_a_pod_have_a_slot_each(occupants: Occupants) -> None:
    pod = training("both", **REPORT)
    pod["spec"]["containers"].append({**main_container(pod), "name": "second"})
    occupants.tenants.create(pod)
    both = occupants.seen("both")
    eventually(lambda: len(both.clients()) == 2)
    slots = {f"{joined.gpu}::{joined.slot}" for joined in both.clients()}
    assert len(slots) == 2
    held = occupants.books.held()
    assert set(held) == slots
    assert {holder.container for holder in held.values()} == {"trainer", "second"}
    occupants.books.settle()


def test_an_init_container_passes_its_slot_on(occupants: Occupants) -> None:
    pod = training("with-init", **REPORT)
    first = {**main_container(pod), "name": "first", "args": [*main_container(pod)["args"], "--seconds", "1"]}
    pod["spec"]["initContainers"] = [first]
    occupants.tenants.create(pod)
    running = occupants.seen("with-init")
    init = running.joined_client()
    eventually(lambda: running.printed("summary"))
    joined = running.joined_client()
    assert (joined.gpu, joined.slot) == (init.gpu, init.slot)
    assert joined.process_id != init.process_id
    (holder,) = occupants.books.held().values()
    assert holder.container == "trainer"
    running.computes()
    occupants.books.settle()
