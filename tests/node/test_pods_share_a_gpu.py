"""An hp pod and three be pods on one simulated GPU, started by the real scheduler, kubelet and container runtime.

Each request of the hp pod takes 10 ms of the GPU. Time-sliced beside three other pods, with slices of 2 ms, a request
takes about four times as long. Compared with this, a busy machine adds little.

The tests share one scene, and each restores it.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes import client

from measurements.cluster.pods_latency import without_slot
from testbed.inside import SIMULATED_GPUS
from testbed.node import Node
from testbed.orion import Orion
from tests.node.gpu_tenants import (
    GpuNode,
    Manifest,
    Tenants,
    advertising,
    deployed,
    serving,
    share,
    training,
)
from tests.node.slot_bookkeeping import SlotBookkeeping
from tests.waiting import eventually

pytestmark = pytest.mark.node

GIB = 1 << 30
LOOKS, REPORTS = 4, 3
""" Latency is measured LOOKS times, each time over REPORTS reports of the hp pod. """
REACHES_SECONDS = 10.0
""" Ten times the allowed time for a changed grant. """
TAKES_PART_SECONDS = 1.0
""" The GPU time of all be pods together over which their parts are compared. """


@dataclass(frozen=True)
class Scene:
    """The pods of all tests: hp pod `serve`; be pods `extra` and two of the Deployment `train`, without requests."""

    tenants: Tenants
    gpus: GpuNode
    books: SlotBookkeeping
    uuid: str
    """ The UUID of their GPU. """
    alone: float
    """ Median latency of the hp pod's requests alone on the GPU, in ms. """
    beside_unmanaged: float
    """ The same beside three pods without Orion. """
    beside_be: float
    """ The same beside the be pods. """
    events_of_unmanaged: list[set[str]]
    """ The reasons of Orion's Events about each pod without Orion. """
    hook_injected: tuple[str, str]
    """ The reason of the GPU's condition HookInjected beside the pods without Orion, and beside the be pods. """


def unmanaged(pod: Manifest, gpus: GpuNode, uuid: str) -> Manifest:
    """The same pod without a slot and without Orion: it mounts the simulated GPU from the node's files."""
    library = next(gpus.path("/var/lib/orion/hook").glob("*/simulated-libcuda.so.1"))
    return without_slot(pod, uuid, Path("/", library.relative_to(gpus.path("/"))), Path(SIMULATED_GPUS))


def latency(tenants: Tenants) -> float:
    """The median latency of the hp pod's requests from now on, in ms: the lowest of several medians.

    A busy machine makes some medians larger, and none smaller.
    """
    medians = [float(report["p50_ms"]) for report in tenants.reports("serve", LOOKS * REPORTS)]
    return min(statistics.median(medians[first : first + REPORTS]) for first in range(0, len(medians), REPORTS))


def event_reasons(tenants: Tenants, name: str) -> set[str]:
    """The reasons of Orion's Events about a pod."""
    return {event.reason for event in tenants.events(name) if event.reporting_component == "orion.gpu/agent"}


@pytest.fixture(scope="module")
def one_gpu(orion: Orion, node: Node) -> Iterator[None]:
    """The node advertises only its first GPU, so all pods are on it."""
    with advertising(orion, node, {"gpus": ["0"]}, hp=1, be=8):
        yield


@pytest.fixture(scope="module")
def scene(one_gpu: None, node: Node, api: client.ApiClient, module_namespace: str) -> Scene:
    tenants, gpus = Tenants(api, module_namespace), GpuNode(node, api)
    tenants.create(serving(rate=20, fixed=1, kernels=10, kernel_us=1000))
    uuid = tenants.begun("serve")["gpu"]
    alone = latency(tenants)

    past = ["past-0", "past-1", "past-2"]
    tenants.create(*(unmanaged(training(name, kernel_us=1800), gpus, uuid) for name in past))
    for name in past:
        assert tenants.begun(name)["gpu"] == uuid
    beside_unmanaged = latency(tenants)
    eventually(lambda: gpus.devices()[uuid].get("unmanagedProcessCount") == len(past))
    eventually(lambda: all(event_reasons(tenants, name) for name in past))
    reasons = [event_reasons(tenants, name) for name in past]
    injected = gpus.condition(uuid, "HookInjected")["reason"]
    tenants.delete(*past)

    train, extra = training("train", kernel_us=1800), training("extra", kernel_us=1800)
    tenants.create(share(train, memory={"limit": "4Gi"}), share(extra), deployed(train, replicas=2), extra)
    tenants.all_begun("train", 2)
    tenants.begun("extra")
    beside_be = latency(tenants)
    eventually(lambda: gpus.condition(uuid, "HookInjected")["reason"] != injected)
    again = gpus.condition(uuid, "HookInjected")["reason"]
    books = SlotBookkeeping(node, api)
    return Scene(tenants, gpus, books, uuid, alone, beside_unmanaged, beside_be, reasons, (injected, again))


def used(scene: Scene) -> dict[str, float]:
    """GPU seconds of each be pod so far, by its name."""
    holders = {device: holder.pod for device, holder in scene.books.held().items() if "::be-" in device}
    return {
        holders[f"{gpu.uuid}::{slot.name}"]: sum(each.gpu_seconds for each in slot.clients)
        for gpu in scene.gpus.snapshot().gpus
        for slot in gpu.slots
        if f"{gpu.uuid}::{slot.name}" in holders
    }


def parts(scene: Scene) -> dict[str, float]:
    """The part of be's GPU time that each be pod gets from now on."""
    before = used(scene)
    eventually(lambda: sum(used(scene).values()) > sum(before.values()) + TAKES_PART_SECONDS)
    spent = {pod: seconds - before[pod] for pod, seconds in used(scene).items()}
    return {pod: seconds / sum(spent.values()) for pod, seconds in spent.items()}


def reach(scene: Scene, name: str, spec: Manifest, arrived: Callable[[], bool]) -> None:
    """Change a GPUShare as `kubectl edit` would, and wait until the change has arrived."""
    client.CustomObjectsApi(scene.tenants.api).patch_namespaced_custom_object(
        "orion.gpu", "v1alpha1", scene.tenants.namespace, "gpushares", name, {"spec": spec}
    )
    eventually(arrived, seconds=REACHES_SECONDS)


def test_be_pods_slow_down_hp_only_without_orion(scene: Scene) -> None:
    assert scene.beside_unmanaged > 1.8 * scene.alone
    assert scene.beside_be - scene.alone < (scene.beside_unmanaged - scene.alone) / 2


def test_only_pods_without_orion_are_reported(scene: Scene) -> None:
    assert scene.hook_injected == ("Unmanaged", "Joined")
    assert scene.events_of_unmanaged == [{"ProcessWithoutHook"}] * 3
    assert not any("ProcessWithoutHook" in event_reasons(scene.tenants, name) for name in scene.tenants.pods("train"))


def test_be_pods_share_equally_what_hp_leaves(scene: Scene) -> None:
    # `eventually` measures several intervals: in one of them, a program may get no CPU and launch nothing.
    eventually(lambda: min(parts(scene).values()) > 0.2)


def test_a_changed_request_reaches_the_running_program(scene: Scene) -> None:
    (device,) = (device for device, holder in scene.books.held().items() if holder.pod == "extra")
    try:
        reach(scene, "extra", {"compute": {"request": 0.8}}, lambda: scene.gpus.slot(device).request == 0.8)
        eventually(lambda: parts(scene)["extra"] > 0.5)
    finally:
        reach(scene, "extra", {"compute": None}, lambda: scene.gpus.slot(device).request == 0)


def test_a_changed_memory_limit_reaches_the_running_programs(scene: Scene) -> None:
    devices = [device for device, holder in scene.books.held().items() if holder.pod.startswith("train-")]

    def limits() -> list[int]:
        return [scene.gpus.slot(device).memory_limit_bytes for device in devices]

    def processes() -> list[list[int]]:
        return [[each.process_id for each in scene.gpus.slot(device).clients] for device in devices]

    before = processes()
    assert limits() == [4 * GIB] * 2
    reach(scene, "train", {"memory": {"limit": "6Gi"}}, lambda: limits() == [6 * GIB] * 2)
    reach(scene, "train", {"memory": {"limit": "4Gi"}}, lambda: limits() == [4 * GIB] * 2)
    assert processes() == before


def test_slots_are_free_again_when_a_deployment_is_scaled_to_zero(scene: Scene) -> None:
    def slots() -> dict[str, int]:
        scene.books.settle()
        found: dict[str, int] = scene.gpus.devices()[scene.uuid]["slots"]["be"]
        return found

    assert slots() == {"total": 8, "held": 3}
    scene.tenants.scale("train", 0)
    eventually(lambda: not scene.tenants.pods("train"))
    assert slots() == {"total": 8, "held": 1}
    scene.tenants.scale("train", 2)
    scene.tenants.all_begun("train", 2)
    assert slots() == {"total": 8, "held": 3}
