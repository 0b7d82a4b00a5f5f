"""A second device plugin that also advertises the node's GPUs. Like NVIDIA's, it advertises whole GPUs by UUID."""

import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc

from orion.device_plugin.kubelet import api_pb2, api_pb2_grpc
from testbed.node import Node

RESOURCE = "nvidia.com/gpu"
SOCKET = "another.sock"


class AnotherPlugin(api_pb2_grpc.DevicePluginServicer):
    """Advertises devices while the context is open. Its threads run in this process.

    Args:
        node: the node.
        devices: the IDs of the devices.
        answer: what each container gets with its devices.
    """

    def __init__(
        self, node: Node, devices: Sequence[str], answer: api_pb2.ContainerAllocateResponse | None = None
    ) -> None:
        self._answer = answer or api_pb2.ContainerAllocateResponse()
        self._folder = node.folder / "lib/kubelet/device-plugins"  # the same files as on the node
        self._devices, self._ended = devices, threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])

    def __enter__(self) -> "AnotherPlugin":
        api_pb2_grpc.add_DevicePluginServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{self._folder / SOCKET}")
        self._server.start()
        request = api_pb2.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE)
        with grpc.insecure_channel(f"unix:{self._folder / 'kubelet.sock'}") as channel:
            stub = api_pb2_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            stub.Register(request, timeout=30)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.stop(grace=5).wait()

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return api_pb2.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        devices = [api_pb2.Device(ID=device, health="Healthy") for device in self._devices]
        yield api_pb2.ListAndWatchResponse(devices=devices)
        self._ended.wait()

    def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        return api_pb2.AllocateResponse(container_responses=[self._answer] * len(request.container_requests))
