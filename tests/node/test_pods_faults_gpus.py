"""GPUs that fall ill or are closed to further pods, and pods whose containers share or hand on devices."""

import sys
from collections.abc import Callable, Iterator

import pytest
from kubernetes import client

from testbed.node import Node
from testbed.orion import Orion
from tests.node.another_plugin import RESOURCE as ANOTHER
from tests.node.another_plugin import AnotherPlugin
from tests.node.disturbed_pods import LIMIT, REPORT, Occupants
from tests.node.gpu_tenants import GROUP, main_container, training
from tests.waiting import eventually

pytestmark = pytest.mark.node


@pytest.fixture
def lose(node: Node, fixed: None) -> Iterator[Callable[[str, str], None]]:
    """Lets a GPU be lost or come back: `lose("lose", uuid)`; all come back at the end."""
    lost: set[str] = set()

    def change(what: str, uuid: str) -> None:
        lost.add(uuid)
        node.run([sys.executable, "-m", "orion.hook.simulated", what, uuid])

    yield change
    for uuid in lost:
        change("restore", uuid)


def test_a_gpu_that_falls_ill_takes_its_slots_with_it_and_brings_them_back_when_it_is_well(
    computing: Occupants, orion: Orion, node: Node, lose: Callable[[str, str], None]
) -> None:
    before, advertised = computing.seats(), orion.allocatable(node)
    ill = before["train"].gpu
    assert ill != before["serve"].gpu  # a be pod comes to the GPU that has no hp pod
    lose("lose", ill)
    eventually(lambda: orion.allocatable(node) == {name: count // 2 for name, count in advertised.items()})
    eventually(lambda: computing.pods["train"].said("error"))
    computing.books.settle()
    computing.create(training("new", **REPORT))
    seats = {name: computing.pods[name].seated() for name in ("serve", "new")}
    assert seats["serve"] == before["serve"]
    assert seats["new"].gpu == before["serve"].gpu
    lose("restore", ill)
    eventually(lambda: orion.allocatable(node) == advertised)
    computing.tenants.delete("train")  # the kubelet lets it wait ever longer between its attempts
    computing.create(training("train", **REPORT))
    assert computing.seats()["train"].gpu == ill
    computing.compute()
    computing.books.settle()


@pytest.fixture
def cordon(api: client.ApiClient, fixed: None) -> Iterator[Callable[[str, bool], None]]:
    """Closes a GPU to further pods, or opens it: `cordon(uuid, True)`; all are open at the end."""
    changed: set[str] = set()

    def change(uuid: str, closed: bool) -> None:
        changed.add(uuid)
        client.CustomObjectsApi(api).patch_cluster_custom_object(
            **GROUP, plural="gpudevices", name=uuid.lower(), body={"spec": {"cordon": closed}}
        )

    yield change
    for uuid in changed:
        change(uuid, False)


def test_to_a_gpu_that_is_cordoned_no_pod_comes_and_those_there_stay(
    computing: Occupants, orion: Orion, node: Node, cordon: Callable[[str, bool], None]
) -> None:
    before, advertised = computing.seats(), orion.allocatable(node)
    train, closed = computing.pods["train"], before["train"].gpu
    cordon(closed, True)
    eventually(
        lambda: orion.allocatable(node) == {"orion.gpu/hp": 1, "orion.gpu/be": advertised["orion.gpu/be"] // 2 + 1}
    )
    train.kill()
    computing.create(training("new", **REPORT))
    seats = computing.seats()
    assert (seats["train"].gpu, seats["train"].slot) == (closed, before["train"].slot)
    train.is_granted(LIMIT)
    assert seats["new"].gpu != closed
    computing.books.settle()
    cordon(closed, False)
    eventually(lambda: orion.allocatable(node) == advertised)
    computing.compute()
    computing.books.settle()


def test_slots_of_a_gpu_that_another_plugin_advertises_too_are_not_advertised_unless_both_shall_be(
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


def test_two_containers_of_a_pod_have_a_slot_each(occupants: Occupants) -> None:
    pod = training("both", **REPORT)
    pod["spec"]["containers"].append({**main_container(pod), "name": "second"})
    occupants.tenants.create(pod)
    both = occupants.seen("both")
    eventually(lambda: len(both.seats()) == 2)
    slots = {f"{seat.gpu}::{seat.slot}" for seat in both.seats()}
    assert len(slots) == 2
    held = occupants.books.held()
    assert set(held) == slots
    assert {holder.container for holder in held.values()} == {"trainer", "second"}
    occupants.books.settle()


def test_an_init_container_hands_its_slot_on(occupants: Occupants) -> None:
    pod = training("heir", **REPORT)
    first = {**main_container(pod), "name": "first", "args": [*main_container(pod)["args"], "--seconds", "1"]}
    pod["spec"]["initContainers"] = [first]
    occupants.tenants.create(pod)
    heir = occupants.seen("heir")
    testator = heir.seated()
    eventually(lambda: heir.said("summary"))
    seat = heir.seated()
    assert (seat.gpu, seat.slot) == (testator.gpu, testator.slot)
    assert seat.process_id != testator.process_id
    (holder,) = occupants.books.held().values()
    assert holder.container == "trainer"
    heir.computes()
    occupants.books.settle()
