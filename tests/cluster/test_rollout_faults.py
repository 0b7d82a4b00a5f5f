"""A rolling update on a real control plane with a fault at each of its steps: it goes on soon after the fault.

Kubelet and agent are those of the test. A fault lasts 3 s; `ORION_TEST_ABSENCE=60` makes it last a minute.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client
from urllib3.exceptions import HTTPError

from testbed.control_plane import ControlPlane
from tests.cluster.conftest import FakeNode
from tests.cluster.cut_proxy import CutProxy
from tests.cluster.operator_process import OperatorProcess, World, grant_rights, running_operator
from tests.cluster.rolling_deployment import HP, RollingDeployment, api, control_plane  # noqa: F401 - fixtures
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

ABSENCE_S = float(os.environ.get("ORION_TEST_ABSENCE", "3"))
PATIENCE_S = 240.0
""" After a minute without an API server, the watches of controllers and scheduler return within another minute. """
LIMIT = 2**30

Act = Callable[[], None]
Fault = Callable[[Act], None]
""" A fault during which, or right after which, the rest of the cluster goes on by one step. """


class Operators:
    """Operators for one namespace, with exactly the chart's rights."""

    def __init__(self, plane: ControlPlane, world: World, kubeconfig: Path, folder: Path) -> None:
        self.plane, self.kubeconfig, self.folder = plane, kubeconfig, folder
        self.options = ("--namespace", world.namespace, "--lease-namespace", world.namespace)


@contextlib.contextmanager
def cut_off(made: Operators) -> Iterator[Fault]:
    """A proxy cuts the operator off from the API server: it misses what happens meanwhile."""
    with CutProxy(made.plane.access.url) as proxy:
        way = proxy.kubeconfig(made.kubeconfig, made.folder / "through-proxy")

        def fault(step: Act) -> None:
            proxy.cut()
            step()
            _pass(ABSENCE_S)
            proxy.fix()

        with running_operator(way, made.folder, *made.options):
            yield fault


@contextlib.contextmanager
def api_server_away(made: Operators) -> Iterator[Fault]:
    """The API server is away for all."""

    def fault(step: Act) -> None:
        made.plane.end("kube-apiserver")
        _pass(ABSENCE_S)
        made.plane.begin("kube-apiserver")
        eventually(lambda: _does(step))

    with running_operator(made.kubeconfig, made.folder, *made.options):
        yield fault


@contextlib.contextmanager
def leader_killed(made: Operators) -> Iterator[Fault]:
    """The leader of two replicas is killed. The time counts from when the other replica holds the Lease."""
    running: list[OperatorProcess] = []

    def begin() -> None:
        name = f"replica-{len(list(made.folder.glob('replica-*.log')))}"
        running.append(OperatorProcess(made.kubeconfig, made.folder, *made.options, name=name).start())

    def fault(step: Act) -> None:
        begin()
        eventually(running[-1].knows_all)
        leader = next(each for each in running if each.metrics()["orion_operator_leader"] == 1)
        running.remove(leader)
        leader.end(signal.SIGKILL)
        step()
        eventually(lambda: running[-1].metrics()["orion_operator_leader"] == 1)

    try:
        begin()
        running[0].wait_until_ready()
        yield fault
    finally:
        for each in running:
            each.end()
            print(each.log.read_text())


@pytest.fixture
def operators(
    own_control_plane: ControlPlane,
    world: World,
    api: client.ApiClient,  # noqa: F811
    kubeconfig_for: Callable[..., Path],
    tmp_path: Path,
) -> Operators:
    user = f"system:serviceaccount:{world.namespace}:orion-operator"
    grant_rights(api, user, world.namespace)
    return Operators(own_control_plane, world, kubeconfig_for(user), tmp_path)


@pytest.mark.parametrize("faulty", [cut_off, api_server_away, leader_killed])
def test_a_rolling_update_goes_on_after_a_fault_at_each_step(
    faulty: Callable[[Operators], contextlib.AbstractContextManager[Fault]],
    operators: Operators,
    world: World,
    fake_node: FakeNode,
) -> None:
    deployment = RollingDeployment(world, fake_node("a", {HP: "1"}))
    with faulty(operators) as fault:
        world.share("web", priority="hp", memory={"limit": str(LIMIT)})
        deployment.create()
        (old,) = deployment.placed(1)
        world.run(old)
        deployment.hold(old)
        eventually(lambda: _limit(world.grant(old, deployment.node)) == LIMIT)

        def restart() -> None:
            deployment.restart()
            eventually(deployment.waits, seconds=PATIENCE_S)

        fault(restart)
        revision = _soon("before the label", deployment.label)
        fault(lambda: deployment.advertise(2))
        new = next(name for name in deployment.placed(2, PATIENCE_S) if name != old)
        fault(lambda: deployment.hold(old, new))
        _soon("after the new pod is bound", lambda: deployment.label() == f"ends-{revision}")
        eventually(lambda: _limit(world.grant(new, deployment.node)) == LIMIT)

        def replace() -> None:
            world.change_share("web", memory={"limit": str(LIMIT // 2)})
            world.run(new)
            world.delete_pod(old)
            deployment.hold(new)

        fault(replace)
        _soon("after the old pod ended", lambda: _limit(world.grant(new, deployment.node)) == LIMIT // 2)
        assert deployment.label() == f"ends-{revision}"
        fault(lambda: deployment.advertise(1))
        _soon("before the label is removed", lambda: not deployment.label())
        widest = {_limit(json.loads(grant)) for name, grant in world.grants if name in (old, new)}
        assert widest == {LIMIT, LIMIT // 2}
        world.delete_device(deployment.uuid)


def _limit(grant: dict[str, dict[str, dict[str, int]]]) -> int | None:
    return grant.get("containers", {}).get("main", {}).get("memoryLimitBytes")


def _soon(step: str, condition: Callable[[], object]) -> object:
    """Wait for what the operator must do after a fault, and print how long it took."""
    began = time.monotonic()
    found = eventually(condition, what=step)
    print(f"fault {step}: right after {time.monotonic() - began:.1f} s")
    return found


def _does(step: Act) -> bool:
    """Whether the API server let the test do this; it is about to start."""
    try:
        step()
    except (client.ApiException, HTTPError):
        return False
    return True


def _pass(seconds: float) -> None:
    """Wait for the time of a fault."""
    end = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= end, seconds=seconds + 1)
