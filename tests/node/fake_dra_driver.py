"""A fake DRA driver: it offers GPUs as NVIDIA's driver does, and gives containers no device.

NVIDIA's driver needs NVIDIA's GPUs. The scheduler, the kubelet and the claims are real.
"""

from concurrent import futures
from typing import Any

import grpc
from kubernetes import client

from orion.dra_driver.kubelet.claims import api_pb2 as claims_pb2
from orion.dra_driver.kubelet.registration import api_pb2 as registration_pb2
from testbed.node import Node

DRIVER = "gpu.nvidia.com"
GROUP = {"group": "resource.k8s.io", "version": "v1"}
ON_NODE = "/var/lib/kubelet"


class FakeDraDriver:
    """Offers devices while the context is open; the kubelet finds its sockets within a second.

    Args:
        api: the administrator's client.
        node: the node.
        devices: the names of the devices.
    """

    def __init__(self, api: client.ApiClient, node: Node, *devices: str) -> None:
        self._objects, self._node, self._devices = client.CustomObjectsApi(api), node, devices
        self._folder = node.folder / "lib/kubelet"  # the same files as on the node
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        self._name = f"{node.name}-{DRIVER}"

    def __enter__(self) -> "FakeDraDriver":
        registration = {"GetInfo": self._info, "NotifyRegistrationStatus": lambda request, context: b""}
        claims = {"NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare}
        for service, methods in (
            ("pluginregistration.Registration", registration),
            ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", claims),
        ):
            handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        (self._folder / "plugins").mkdir(exist_ok=True)
        for socket in ("plugins/fake-dra.sock", "plugins_registry/fake-dra.sock"):
            self._server.add_insecure_port(f"unix:{self._folder / socket}")
        self._create("resourceslices", self._slice(), self._name)
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        self._create("deviceclasses", {"kind": "DeviceClass", "spec": {"selectors": [selector]}}, DRIVER)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=5).wait()
        self._objects.delete_cluster_custom_object(**GROUP, plural="resourceslices", name=self._name)
        self._objects.delete_cluster_custom_object(**GROUP, plural="deviceclasses", name=DRIVER)

    def claim(self, namespace: str, name: str) -> dict[str, Any]:
        """Create a claim of one GPU; return the fields of a pod that uses it."""
        request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": 1}}
        made = {"kind": "ResourceClaim", "spec": {"devices": {"requests": [request]}}}
        body = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": name}, **made}
        self._objects.create_namespaced_custom_object(**GROUP, namespace=namespace, plural="resourceclaims", body=body)
        return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}

    def _create(self, plural: str, body: dict[str, Any], name: str) -> None:
        body = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": name}, **body}
        self._objects.create_cluster_custom_object(**GROUP, plural=plural, body=body)

    def _slice(self) -> dict[str, Any]:
        pool = {"name": self._node.name, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": name} for name in self._devices]
        return {
            "kind": "ResourceSlice",
            "spec": {"driver": DRIVER, "nodeName": self._node.name, "pool": pool, "devices": devices},
        }

    def _info(self, request: bytes, context: Any) -> bytes:
        info = registration_pb2.PluginInfo(type="DRAPlugin", name=DRIVER, endpoint=f"{ON_NODE}/plugins/fake-dra.sock")
        info.supported_versions.append("v1.DRAPlugin")
        return bytes(info.SerializeToString())

    def _prepare(self, request: bytes, context: Any) -> bytes:
        """Answer with the devices that the scheduler chose."""
        answer = claims_pb2.NodePrepareResourcesResponse()
        for claim in claims_pb2.NodePrepareResourcesRequest.FromString(request).claims:
            found: Any = self._objects.get_namespaced_custom_object(
                **GROUP, namespace=claim.namespace, plural="resourceclaims", name=claim.name
            )
            for result in found["status"]["allocation"]["devices"]["results"]:
                chosen = {"pool_name": result["pool"], "device_name": result["device"]}
                answer.claims[claim.uid].devices.add(request_names=[result["request"]], **chosen)
        return bytes(answer.SerializeToString())

    def _unprepare(self, request: bytes, context: Any) -> bytes:
        answer = claims_pb2.NodeUnprepareResourcesResponse()
        for claim in claims_pb2.NodeUnprepareResourcesRequest.FromString(request).claims:
            answer.claims[claim.uid].SetInParent()
        return bytes(answer.SerializeToString())
