"""Processes end and start while pods compute: a container's program, the kubelet, the agent, the device plugin."""

import pytest

from testbed.node import Node
from testbed.orion import Orion
from tests.node.disturbed_pods import LIMIT, REPORT, Occupants, registrations, wait_until_registered
from tests.node.gpu_tenants import training
from tests.waiting import eventually

pytestmark = pytest.mark.node

TERMINATED, KILLED = 20.0, 0.0
UPDATED_SECONDS = 20.0
""" Ten times the allowed time without capacity in a rolling update. """


def test_a_container_that_is_killed_begins_again_in_its_slot_and_under_its_grant(computing: Occupants) -> None:
    before, held = computing.clients(), computing.books.held()
    for pod in computing.pods.values():
        pod.kill()
    for name, pod in computing.pods.items():
        joined = pod.joined_client()
        pod.is_granted(LIMIT)
        assert (joined.gpu, joined.slot) == (before[name].gpu, before[name].slot)
        assert joined.process_id != before[name].process_id
    assert computing.books.held() == held
    computing.compute()
    eventually(lambda: [computing.restarts(name) for name in computing.pods] == [1, 1])
    computing.books.settle()


def test_pods_continue_and_new_pods_start_when_the_kubelet_restarts(
    computing: Occupants, orion: Orion, node: Node
) -> None:
    before = computing.clients()
    node.end("kubelet")
    computing.compute()
    registered = registrations(orion, node)
    node.begin("kubelet")
    wait_until_registered(orion, node, since=registered)
    computing.books.settle()
    computing.create(training("another", **REPORT))
    clients = computing.clients()
    another = clients.pop("another")
    assert clients == before
    assert (another.gpu, another.slot) not in [(joined.gpu, joined.slot) for joined in clients.values()]
    computing.compute()
    computing.books.settle()
    assert [computing.restarts(name) for name in computing.pods] == [0, 0, 0]


@pytest.mark.parametrize("patience", [TERMINATED, KILLED], ids=["terminated", "killed"])
def test_pods_keep_their_slots_and_compute_while_the_agent_is_replaced(
    computing: Occupants, orion: Orion, node: Node, patience: float
) -> None:
    before = computing.clients()
    orion.end(node, "agent", patience)
    computing.compute()
    orion.begin_agent(node)
    assert computing.clients() == before
    assert [pod.slot().memory_limit_bytes for pod in computing.pods.values()] == [LIMIT, LIMIT]
    computing.compute()
    computing.books.settle()
    assert computing.clients() == before
    assert [computing.restarts(name) for name in computing.pods] == [0, 0]


def test_capacity_and_pods_stay_through_rolling_updates_in_which_the_old_plugin_ends_last(
    computing: Occupants, orion: Orion, node: Node
) -> None:
    before = computing.clients()
    for old, new in (("plugin", "plugin-2"), ("plugin-2", "plugin")):
        registered = registrations(orion, node, new)
        orion.begin_plugin(node, new)
        wait_until_registered(orion, node, new, registered)
        orion.end(node, old)
        computing.books.settle(UPDATED_SECONDS)
        computing.compute()
    assert computing.clients() == before
    train = computing.pods["train"]
    train.kill()  # the kubelet calls the new plugin for the container's next start
    joined = train.joined_client()
    assert (joined.gpu, joined.slot) == (before["train"].gpu, before["train"].slot)
    train.is_granted(LIMIT)
    computing.books.settle()
