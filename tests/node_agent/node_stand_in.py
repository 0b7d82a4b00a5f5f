"""A stand-in that a test controls: a kubelet's PodResources interface, a real gRPC server on a real socket.

The tests in tests/node use a real kubelet.
"""

import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from orion.node_agent.kubelet import api_pb2, api_pb2_grpc

NODE = "a-node"
Slot = tuple[str, str]


class StandInKubelet(api_pb2_grpc.PodResourcesListerServicer):
    """Reports which container has which device; can be stopped, slow, and started again on the same socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.lists = 0
        self.open = threading.Event()
        """ While cleared, queries wait for their answers. """
        self.open.set()
        self._claims: dict[tuple[str, str, str], list[Slot]] = {}
        self.claimed: list[str] = []
        """ Pods of namespace n with a claim of Orion's driver. """
        self.users: list[tuple[str, str]] = []
        """ Pods of namespace default, each with the claim of Orion's driver that it uses. """
        self._server: grpc.Server | None = None

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        api_pb2_grpc.add_PodResourcesListerServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        self.open.set()
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def give(self, pod: str, *slots: Slot, container: str = "main", namespace: str = "default") -> None:
        """Give these slots to a container and take them from all others; without slots, take all from the container."""
        claims = {who: [slot for slot in has if slot not in slots] for who, has in self._claims.items()}
        claims.pop((namespace, pod, container), None)
        if slots:
            claims[namespace, pod, container] = list(slots)
        self._claims = claims

    def forget_all(self) -> None:
        """List no devices, as a kubelet does just after its own start."""
        self._claims = {}

    def List(self, request: Any, context: Any) -> api_pb2.ListPodResourcesResponse:  # noqa: N802
        self.lists += 1
        self.open.wait(60)
        pods: dict[tuple[str, str], list[Any]] = {}
        for (namespace, pod, container), slots in self._claims.items():
            devices = [
                api_pb2.ContainerDevices(resource_name=f"orion.gpu/{name[:2]}", device_ids=[f"{gpu}::{name}"])
                for gpu, name in slots
            ]
            devices.append(api_pb2.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-1::hp-0"]))
            pods.setdefault((namespace, pod), []).append(api_pb2.ContainerResources(name=container, devices=devices))
        for pod in self.claimed:
            given = api_pb2.DynamicResource(claim_resources=[api_pb2.ClaimResource(driver_name="orion.gpu")])
            pods["n", pod] = [api_pb2.ContainerResources(name="main", dynamic_resources=[given])]
        for pod, claim in self.users:
            given = api_pb2.DynamicResource(
                claim_name=claim,
                claim_namespace="default",
                claim_resources=[api_pb2.ClaimResource(driver_name="orion.gpu")],
            )
            pods.setdefault(("default", pod), []).append(
                api_pb2.ContainerResources(name="main", dynamic_resources=[given])
            )
        return api_pb2.ListPodResourcesResponse(
            pod_resources=[
                api_pb2.PodResources(name=pod, namespace=namespace, containers=containers)
                for (namespace, pod), containers in pods.items()
            ]
        )

    def GetAllocatableResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        return api_pb2.AllocatableResourcesResponse()
