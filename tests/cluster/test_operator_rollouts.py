"""A rolling update on a real control plane: the operator opens the old pod's node, and the scheduler uses it."""

import signal

import pytest

from tests.cluster.conftest import FakeNode
from tests.cluster.operator_process import OperatorProcess, World
from tests.cluster.rolling_deployment import HP, RollingDeployment, api, control_plane  # noqa: F401 - fixtures
from tests.waiting import eventually

pytestmark = pytest.mark.cluster


def test_the_old_pods_node_is_open_until_the_new_pod_has_its_slot(
    world: World, own_operator: OperatorProcess, fake_node: FakeNode
) -> None:
    deployment = RollingDeployment(world, fake_node("a", {HP: "1"}))
    deployment.create()
    (old,) = deployment.placed(1)
    world.run(old)
    deployment.hold(old)
    deployment.restart()
    workload = eventually(deployment.label)
    assert not workload.startswith("ends-")

    own_operator.end(signal.SIGKILL)
    deployment.advertise(2)
    own_operator.start().wait_until_ready()
    new = next(name for name in deployment.placed(2) if name != old)
    deployment.hold(old, new)
    eventually(lambda: deployment.label() == f"ends-{workload}")
    deployment.advertise(1)
    eventually(lambda: not deployment.label())
    world.delete_device(deployment.uuid)
