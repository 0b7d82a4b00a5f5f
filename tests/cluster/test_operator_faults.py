"""The operator is killed, cut off from the API server, gets old data, or runs twice; the objects still converge."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client

from testbed.control_plane import ControlPlane
from tests.cluster import api_types, node_pods_caller
from tests.cluster.conftest import client_for
from tests.cluster.cut_proxy import CutProxy
from tests.cluster.operator_process import OperatorProcess, World, running_operator
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

GI = 2**30
NAMESPACE = "default"
LEASE = ("--lease-namespace", NAMESPACE)
PODS = 30


@pytest.fixture
def plane(own_control_plane: ControlPlane) -> ControlPlane:
    """A control plane for this test alone, with the API types."""
    with client_for(own_control_plane.access.kubeconfig) as api:
        api_types.establish(api)
    return own_control_plane


@pytest.fixture
def world(plane: ControlPlane) -> Iterator[World]:
    with client_for(plane.access.kubeconfig) as api:
        yield World(api, NAMESPACE)


def make(world: World, pods: int = PODS) -> None:
    """Make a share and its pods; the pods get their grants once the operator runs."""
    world.share("training", memory={"limit": "1Gi"})
    for number in range(pods):
        world.pod(f"train-{number}", "training")


def settled(world: World, limit: int) -> None:
    """Wait until all pods have this limit in bytes, and the share is Ready."""
    eventually(lambda: world.memory_limits() == {limit})
    eventually(lambda: world.condition("training", "Ready") == ("True", "Granted"))


def test_an_operator_that_is_killed_repeatedly_during_its_work_converges(
    plane: ControlPlane, world: World, tmp_path: Path
) -> None:
    make(world)
    moments = random.Random(20260102)
    process = OperatorProcess(plane.access.kubeconfig, tmp_path, *LEASE)
    try:
        for attempt in range(8):
            world.change_share("training", memory={"limit": f"{attempt + 2}Gi"})
            process.start()
            if attempt % 2:  # otherwise the test kills the operator while it starts
                process.wait_until_ready()
            _pass(moments.uniform(0, 0.6))
            process.end(signal.SIGKILL)
        process.start().wait_until_ready()
        settled(world, 9 * GI)
        eventually(process.at_rest)
        assert len(world.events()) == len(set(world.events()))
    finally:
        process.end()


def test_changes_during_a_cut_watch_are_known_afterwards(plane: ControlPlane, world: World, tmp_path: Path) -> None:
    make(world, pods=5)
    with CutProxy(plane.access.url) as proxy:
        way = proxy.kubeconfig(plane.access.kubeconfig, tmp_path / "through-proxy")
        with running_operator(way, tmp_path, *LEASE):
            settled(world, GI)
            proxy.cut()
            world.change_share("training", memory={"limit": "2Gi"})
            world.pod("late", "training")
            world.delete_pod("train-0")
            proxy.fix()
            settled(world, 2 * GI)
            eventually(lambda: world.share_status("training")["pods"]["governed"] == 5)


def test_the_operator_lists_again_when_its_watch_is_too_old_for_a_restarted_api_server(
    plane: ControlPlane, world: World, tmp_path: Path
) -> None:
    """A restarted API server has an empty cache of changes, so an older watch gets 410 Gone and must list again."""
    make(world, pods=5)
    world.share("doomed", selector={"matchLabels": {"app": "doomed"}})
    world.pod("orphan", "doomed", pin="doomed")
    with CutProxy(plane.access.url) as proxy:
        way = proxy.kubeconfig(plane.access.kubeconfig, tmp_path / "through-proxy")
        with running_operator(way, tmp_path, *LEASE, "--verbose") as operator:
            settled_with_orphan(world)
            proxy.cut()
            world.delete_share("doomed")
            world.change_share("training", memory={"limit": "3Gi"})
            plane.restart("kube-apiserver")
            proxy.fix()
            eventually(lambda: "Restarting the watch-stream for gpushares" in operator.log.read_text())  # kopf's 410
            eventually(lambda: world.complaints("orphan") == {"ShareDeleted"})
            eventually(lambda: world.memory_limits() == {3 * GI, None})
            assert operator.running


def test_a_definition_that_is_deleted_and_applied_again_is_watched_again(
    plane: ControlPlane, world: World, tmp_path: Path
) -> None:
    make(world, pods=3)
    with running_operator(plane.access.kubeconfig, tmp_path, *LEASE) as operator:
        settled(world, GI)
        client.ApiextensionsV1Api(world.api).delete_custom_resource_definition("gpushares.orion.gpu")
        eventually(lambda: "gpushares?watch=true" in operator.log.read_text())  # kopf's words about a refused watch
        api_types.establish(world.api)
        world.share("training", memory={"limit": "2Gi"})
        settled(world, 2 * GI)
        assert operator.running


def settled_with_orphan(world: World) -> None:
    eventually(lambda: world.condition("training", "Ready") == ("True", "Granted"))
    eventually(lambda: world.grant("orphan").get("share") == "doomed")


def test_pods_that_are_older_than_the_label_stay_governed(plane: ControlPlane, world: World, tmp_path: Path) -> None:
    world.share("training", memory={"limit": "1Gi"})
    world.pod("older", "training", labelled=False)
    with running_operator(plane.access.kubeconfig, tmp_path, *LEASE):
        world.pod("newer", "training")
        settled(world, GI)
        eventually(lambda: world.share_status("training")["pods"]["governed"] == 2)
        world.change_share("training", memory={"limit": "2Gi"})
        settled(world, 2 * GI)
        world.delete_pod("older")
        eventually(lambda: world.share_status("training")["pods"]["governed"] == 1)


def test_pods_without_the_label_are_not_sent_to_the_operator(plane: ControlPlane, world: World, tmp_path: Path) -> None:
    world.pod("theirs", "other", priority=None)
    world.pod("ours", "training")
    with running_operator(plane.access.kubeconfig, tmp_path, *LEASE, serves=False) as operator:
        world.pod("theirs-later", "other", priority=None)
        world.pod("ours-later", "training")
        eventually(lambda: operator.metrics()['orion_operator_objects{kind="pods"}'] == 2)


def test_changes_are_applied_while_the_api_server_restarts(plane: ControlPlane, world: World, tmp_path: Path) -> None:
    make(world)
    with running_operator(plane.access.kubeconfig, tmp_path, *LEASE) as operator:
        settled(world, GI)
        world.change_share("training", memory={"limit": "2Gi"})
        plane.restart("kube-apiserver")
        settled(world, 2 * GI)
        assert operator.running


def test_two_operators_by_mistake_do_not_flap(plane: ControlPlane, world: World, tmp_path: Path) -> None:
    make(world)
    way = plane.access.kubeconfig
    with (
        running_operator(way, tmp_path, *LEASE, "--no-elect", name="one") as one,
        running_operator(way, tmp_path, *LEASE, "--no-elect", name="other") as other,
    ):
        settled(world, GI)
        for limit in (2, 3):
            world.change_share("training", memory={"limit": f"{limit}Gi"})
            settled(world, limit * GI)
        eventually(lambda: one.at_rest() and other.at_rest())
        status, versions = world.share_status("training"), _versions(world)
        before = one.writes() + other.writes()
        _pass(8)
        assert one.writes() + other.writes() == before
        assert world.share_status("training") == status
        assert _versions(world) == versions
        assert len(world.events()) == len(set(world.events()))


def test_one_of_two_operators_writes_and_the_other_takes_over(
    plane: ControlPlane, world: World, tmp_path: Path
) -> None:
    make(world, pods=5)
    way = plane.access.kubeconfig
    with running_operator(way, tmp_path, *LEASE, name="first") as first:
        settled(world, GI)
        second = OperatorProcess(way, tmp_path, *LEASE, name="second").start()
        try:
            eventually(second.knows_all)
            world.change_share("training", memory={"limit": "2Gi"})
            settled(world, 2 * GI)
            assert second.writes() == 0
            first.end(signal.SIGKILL)
            world.change_share("training", memory={"limit": "3Gi"})
            settled(world, 3 * GI)
            eventually(lambda: second.writes() > 0)
        finally:
            second.end()


def test_what_changed_while_no_replica_served_is_sent_by_the_next_one(
    plane: ControlPlane, world: World, tmp_path: Path
) -> None:
    make(world, pods=5)
    process = OperatorProcess(plane.access.kubeconfig, tmp_path, *LEASE).start()
    try:
        settled(world, GI)
        [before] = node_pods_caller.certificates(world.api, NAMESPACE).values()
        process.end(signal.SIGKILL)
        world.change_share("training", memory={"limit": "2Gi"})
        world.delete_pod("train-0")
        process.start()
        eventually(lambda: world.memory_limits() == {2 * GI})
        assert len([name for name in world.received()[0] if name.startswith("train-")]) == 4
        assert before not in node_pods_caller.certificates(world.api, NAMESPACE).values()  # its key is gone
    finally:
        process.end()


def test_agents_lose_no_change_when_one_of_two_replicas_is_killed(
    plane: ControlPlane, world: World, tmp_path: Path
) -> None:
    make(world, pods=5)
    way = plane.access.kubeconfig
    with (
        running_operator(way, tmp_path, *LEASE, name="first") as first,
        running_operator(way, tmp_path, *LEASE, name="second", standby=True) as second,
    ):
        eventually(lambda: len(world.received()) == 2 and world.memory_limits() == {GI})
        first.end(signal.SIGKILL)
        world.change_share("training", memory={"limit": "2Gi"})
        eventually(lambda: world.memory_limits() == {2 * GI})  # before the second replica may hold the Lease
        assert second.running


def test_a_conflict_with_another_writer_of_the_status_ends(plane: ControlPlane, world: World, tmp_path: Path) -> None:
    make(world, pods=3)
    with running_operator(plane.access.kubeconfig, tmp_path, *LEASE) as operator:
        settled(world, GI)
        for number in range(20):
            world.scribble("training", f"scribble {number}")
            world.change_share("training", memory={"limit": f"{number + 2}Gi"})
        settled(world, 21 * GI)
        eventually(lambda: world.share_status("training")["pods"]["granted"] == 3)
        assert operator.running


def _pass(seconds: float) -> None:
    """Wait for a time in which nothing must happen, or after which the test kills the operator."""
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= end)


def _versions(world: World) -> list[str]:
    return [world.read_pod(f"train-{number}").metadata.resource_version for number in range(PODS)]
