"""The invariant after every fault: no two running containers hold the same slot, and no slot is lost.

Five sources say who holds a node's slots: the kubelet's checkpoint, the kubelet's PodResources interface, the agent,
the GPUDevices, and the Node object. All must equal the kubelet's checkpoint. They learn of a change one after the
other, so the check waits until they agree.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import grpc
from kubernetes import client

from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, NoAgent
from orion.node_agent.kubelet import api_pb2, api_pb2_grpc
from testbed.node import Node
from testbed.orion import RESOURCES
from tests.node.gpu_tenants import GpuNode
from tests.waiting import DEADLINE, eventually

ANSWER_SECONDS = 5.0
ENDED = ("Succeeded", "Failed")


class Holder(NamedTuple):
    """A container, as all sources name it."""

    namespace: str
    pod: str
    container: str


Holders = Mapping[str, Holder]
""" By device id, such as GPU-<uuid>::be-3. """


class SlotBookkeeping:
    """The slots of a node on which all components run. After a fault, the node must advertise the same slots again."""

    def __init__(self, node: Node, api: client.ApiClient) -> None:
        self._node, self._gpus, self._core = node, GpuNode(node, api), client.CoreV1Api(api)
        self._capacity: Mapping[str, int] = {}
        self.settle()
        self._capacity = self._amounts("capacity")

    def settle(self, deadline: float = DEADLINE) -> None:
        """Wait until all sources agree.

        Raises:
            AssertionError: they do not agree in time; the message says which differ, and how.
        """
        last: list[str] = []

        def agreed() -> bool:
            last[:] = self.disagreements()
            return not last

        try:
            eventually(agreed, seconds=deadline)
        except AssertionError:
            raise AssertionError("the sources disagree about the slots:\n" + "\n".join(last)) from None

    def disagreements(self) -> list[str]:
        """Return one sentence for each difference."""
        try:
            return list(self._disagreements())
        except (NoAgent, grpc.RpcError, client.ApiException, OSError) as error:
            return [f"a source does not answer: {error}"]

    def held(self) -> dict[str, Holder]:
        """Return who holds each slot by the kubelet's checkpoint."""
        holders, _ = self._recorded(self._pods())
        return holders

    def _disagreements(self) -> Iterator[str]:
        pods = self._pods()
        holders, twice = self._recorded(pods)
        yield from twice
        yield from _lost(pods, holders)
        listed, advertised_now = self._asked()
        if listed != holders:
            yield f"checkpoint: {holders}; PodResources: {listed}"
        with AgentClient(self._gpus.path("/run/orion")) as agent:
            advertised, snapshot = next(agent.watch_devices()), agent.snapshot()
        held = {f"{gpu.uuid}::{name}" for gpu in advertised.devices for name in gpu.held}
        if held != set(holders):
            yield f"checkpoint: {sorted(holders)}; agent: {sorted(held)}"
        yield from self._of_devices(advertised, holders)
        yield from self._of_kubelet(advertised, holders, advertised_now)
        yield from self._of_clients(snapshot, pods, holders)

    def _of_devices(self, advertised: agent_pb2.Devices, holders: Holders) -> Iterator[str]:
        """GPUDevices must show the slots that the agent advertises, and their holders."""
        statuses = self._gpus.devices()
        rows = {
            f"{uuid}::{row['name']}": Holder(
                *(row.get("pod", {}).get(each) for each in ("namespace", "name", "container"))
            )
            for uuid, status in statuses.items()
            for row in status.get("heldSlots", ())
        }
        if rows != holders:
            yield f"checkpoint: {holders}; GPUDevices: {rows}"
        for gpu in advertised.devices:
            shown = statuses.get(gpu.uuid, {}).get("slots", {})
            counts = {role: (of["total"], of["held"]) for role, of in shown.items()}
            expected = {
                role: (_count(gpu.slots, role), sum(device.startswith(f"{gpu.uuid}::{role}-") for device in holders))
                for role in ("hp", "be")
            }
            if counts != expected:
                yield f"{gpu.uuid} should have {expected} slots (total, held), and its GPUDevice says {counts}"

    def _of_kubelet(self, advertised: agent_pb2.Devices, holders: Holders, registered: set[str]) -> Iterator[str]:
        """The kubelet must have registered the usable slots, and the Node object must show them."""
        every = {resource: set[str]() for resource in RESOURCES}
        usable = {resource: set[str]() for resource in RESOURCES}
        for gpu in advertised.devices:
            for name in gpu.slots:
                device, resource = f"{gpu.uuid}::{name}", f"orion.gpu/{name.partition('-')[0]}"
                every[resource].add(device)
                if gpu.healthy and (not gpu.cordoned or device in holders):
                    usable[resource].add(device)
        # The kubelet collects the checkpoint's lists of devices under its lock and writes them outside it. Of two lists
        # that arrive at once the older may be written last. It reads back only the names of the resources.
        recorded = self._checkpoint()["RegisteredDevices"]
        if missing := set(RESOURCES) - set(recorded):
            yield f"the kubelet's checkpoint does not name {sorted(missing)}"
        if registered != set().union(*usable.values()):
            yield f"usable: {usable}; the kubelet: {sorted(registered)}"
        for field, expected in (("capacity", every), ("allocatable", usable)):
            shown, counted = self._amounts(field), {name: len(devices) for name, devices in expected.items()}
            if shown != counted:
                yield f"the node's {field} should be {counted}, and is {shown}"
        if self._capacity and self._amounts("capacity") != self._capacity:
            yield f"the node's capacity was {self._capacity} before, and is {self._amounts('capacity')}"

    def _of_clients(self, snapshot: agent_pb2.Snapshot, pods: list[client.V1Pod], holders: Holders) -> Iterator[str]:
        """Each client of a slot must be a process of the container that holds the slot."""
        uids = {(pod.metadata.namespace, pod.metadata.name): pod.metadata.uid for pod in pods}
        for gpu in snapshot.gpus:
            for slot in gpu.slots:
                holder = holders.get(f"{gpu.uuid}::{slot.name}")
                uid = uids.get(holder[:2], "") if holder else ""
                strange = [
                    each.process_id for each in slot.clients if not uid or uid not in self.pod_of(each.process_id)
                ]
                if strange:
                    yield f"{gpu.uuid}::{slot.name} is held by {holder}, and the processes {strange} have joined it"

    def pod_of(self, process_id: int) -> str:
        """Return the cgroup of a process on the node; it contains the pod's uid. Empty if the process has ended."""
        try:
            return self._gpus.path(f"/proc/{process_id}/cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def _pods(self) -> list[client.V1Pod]:
        """Return the pods of the node that have not ended."""
        found = self._core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={self._node.name}").items
        return [pod for pod in found if pod.status.phase not in ENDED]

    def _recorded(self, pods: list[client.V1Pod]) -> tuple[dict[str, Holder], list[str]]:
        """Return who holds each slot by the checkpoint, and a sentence for each slot that has two holders.

        Entries of pods that have ended stay in the checkpoint until the kubelet writes it again; they hold nothing.
        Entries of ordinary init containers do not count either: the kubelet passes their devices to a later container,
        and the two never run at the same time.
        """
        by_uid = {pod.metadata.uid: pod for pod in pods}
        holders: dict[str, Holder] = {}
        twice = []
        for entry in self._checkpoint()["PodDeviceEntries"] or ():
            pod = by_uid.get(entry["PodUID"])
            if entry["ResourceName"] not in RESOURCES or pod is None or _is_init(pod, entry["ContainerName"]):
                continue
            holder = Holder(pod.metadata.namespace, pod.metadata.name, entry["ContainerName"])
            for device in (device for devices in entry["DeviceIDs"].values() for device in devices):
                if holders.setdefault(device, holder) != holder:
                    twice.append(f"{device} is held by {holders[device]} and by {holder}")
        return holders, twice

    def _asked(self) -> tuple[dict[str, Holder], set[str]]:
        """Return who holds each slot by the kubelet's PodResources interface, and which slots it can allocate."""
        socket = self._gpus.path("/var/lib/kubelet/pod-resources/kubelet.sock")
        with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")]) as channel:
            stub = api_pb2_grpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
            answer = stub.List(api_pb2.ListPodResourcesRequest(), timeout=ANSWER_SECONDS)
            request = api_pb2.AllocatableResourcesRequest()
            allocatable = stub.GetAllocatableResources(request, timeout=ANSWER_SECONDS)
        usable = {i for each in allocatable.devices if each.resource_name in RESOURCES for i in each.device_ids}
        holders = {
            device: Holder(pod.namespace, pod.name, container.name)
            for pod in answer.pod_resources
            for container in pod.containers
            for devices in container.devices
            if devices.resource_name in RESOURCES
            for device in devices.device_ids
        }
        return holders, usable

    def _checkpoint(self) -> dict[str, Any]:
        record = self._gpus.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").read_text()
        data: dict[str, Any] = json.loads(record)["Data"]
        return data

    def _amounts(self, field: str) -> dict[str, int]:
        amounts: Any = getattr(self._core.read_node(self._node.name).status, field)
        return {name: int(amounts.get(name, 0)) for name in RESOURCES}


def _is_init(pod: client.V1Pod, container: str) -> bool:
    """Return whether a container is an ordinary init container, which ends before the others begin."""
    return any(each.name == container and each.restart_policy != "Always" for each in pod.spec.init_containers or ())


def _lost(pods: list[client.V1Pod], holders: Holders) -> Iterator[str]:
    """Yield a sentence for each container that runs without the slots that it requests."""
    counts = Counter(holders.values())
    for pod in pods:
        running = {each.name for each in pod.status.container_statuses or () if each.state.running}
        for container in pod.spec.containers:
            asked = sum(int((container.resources.limits or {}).get(name, 0)) for name in RESOURCES)
            holder = Holder(pod.metadata.namespace, pod.metadata.name, container.name)
            if container.name in running and counts[holder] != asked:
                yield f"{holder} runs and has {counts[holder]} slots of {asked}"


def _count(names: Any, role: str) -> int:
    return sum(name.startswith(f"{role}-") for name in names)
