"""The operator needs exactly the rights that the chart ships, under the chart's policies.

The audit log shows no right missing and none unused.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client

from orion.crds.annotations import STARTUP_TAINT
from tests.cluster.audited_operator import audited_operator
from tests.cluster.audited_plane import AuditedPlane, granted
from tests.cluster.conftest import client_for
from tests.cluster.node_pods_caller import CONFIG_MAP, certificates
from tests.cluster.operator_process import ROLE, OperatorProcess, World, apply
from tests.waiting import eventually

pytestmark = pytest.mark.cluster

ASKED_BY_POLICY = {("orion.gpu", "gpudevices", "release")}
GPU, LOST_GPU, CORDONED_GPU = (f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(3))


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[AuditedPlane]:
    with audited_operator(tmp_path) as plane:
        apply(plane.plane.access.kubeconfig, ROLE.with_name("operator-policy.yaml"))
        yield plane


def test_every_right_is_used_and_none_is_missing(audited: AuditedPlane, tmp_path: Path) -> None:
    world = World(audited.api, "default")
    core = client.CoreV1Api(audited.api)
    process = OperatorProcess(audited.kubeconfig, tmp_path, "--lease-namespace", "default")
    core.delete_namespaced_config_map(CONFIG_MAP, "default")  # the operator creates it again
    process.start()
    try:
        process.wait_until_ready()
        assert len(certificates(audited.api, "default")) == 1
        _use_all_rights(world, core)
        eventually(lambda: ("coordination.k8s.io", "leases", "update") in audited.asked())  # a renewal
    finally:
        assert process.end(signal.SIGTERM) == 0
    assert audited.asked() | ASKED_BY_POLICY == granted(ROLE)
    assert audited.refused() == []


def test_forbidden_requests_are_refused(audited: AuditedPlane) -> None:
    with client_for(audited.kubeconfig) as operator:
        core = client.CoreV1Api(operator)
        forbidden: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (core.list_secret_for_all_namespaces, ()),
            (core.list_namespaced_config_map, ("default",)),
            (core.patch_namespaced_pod, ("p", "default", {"metadata": {"labels": {"a": "b"}}})),
            (core.delete_namespaced_pod, ("p", "default")),
            (core.patch_namespaced_pod_status, ("p", "default", {"status": {"phase": "Failed"}})),
            (core.patch_namespaced_config_map, ("other", "default", {"data": {"a": "b"}})),
            (core.create_namespaced_service_account_token, ("orion-agent", "default", {"spec": {}})),
            (core.delete_node, ("n",)),
        ]
        for call, arguments in forbidden:
            with pytest.raises(client.ApiException) as refusal:
                call(*arguments)
            assert refusal.value.status == 403


def _use_all_rights(world: World, core: client.CoreV1Api) -> None:
    taints = [{"key": STARTUP_TAINT, "effect": "NoSchedule"}]
    core.create_node({"metadata": {"name": "node"}, "spec": {"taints": taints}})
    world.share("mild", memory={"limit": "1Gi"})
    world.share("strict", failClosed=True)
    for name in ("mild", "strict"):
        world.pod(name, name, "node")
        world.run(name)
    core.patch_node_status("node", {"status": {"allocatable": {"orion.gpu/hp": "1", "orion.gpu/be": "8"}}})
    slots = {"hp": {"total": 1}, "be": {"total": 8}}
    unmanaged = [{"processId": 9, "pod": world.reference("strict")}]
    place = {"name": "be-0", "priority": "be", "pod": world.reference("mild")}
    held = [{**place, "share": "mild", "generation": 1}]
    world.fake_agent_reports(
        GPU, node="node", slots=slots, heldSlots=held, unmanaged=unmanaged, unmanagedProcessCount=1
    )
    eventually(lambda: world.read_pod("strict").metadata.deletion_timestamp)
    eventually(lambda: world.grant("mild", "node").get("shareGeneration") == 1)
    eventually(lambda: world.condition("mild", "Ready") == ("True", "Granted"))
    eventually(lambda: "orion.gpu/gpus" in (core.read_node("node").metadata.labels or {}))
    eventually(lambda: STARTUP_TAINT not in {each.key for each in core.read_node("node").spec.taints or ()})
    for gpu, spec in ((LOST_GPU, {}), (CORDONED_GPU, {"cordon": True})):
        world.fake_agent_reports(gpu, spec, node="gone", health="Healthy")
    eventually(lambda: world.device_status(CORDONED_GPU)["health"] == "Unknown")
    eventually(lambda: LOST_GPU.lower() not in world.devices())
    assert world.devices() == {GPU.lower(), CORDONED_GPU.lower()}
