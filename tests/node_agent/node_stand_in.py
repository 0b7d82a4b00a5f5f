"""Stand-ins that a test controls: a kubelet's PodResources interface, and the pods of an API server.

PodResources is a real gRPC server on a real socket. The API server is an HTTP server that only lists and watches pods.
The tests in tests/cluster use a real kubelet interface and a real API server.
"""

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

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
        return api_pb2.ListPodResourcesResponse(
            pod_resources=[
                api_pb2.PodResources(name=pod, namespace=namespace, containers=containers)
                for (namespace, pod), containers in pods.items()
            ]
        )

    def GetAllocatableResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        return api_pb2.AllocatableResourcesResponse()


class StandInPods:
    """The pods of one node, as an API server lists and watches them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._version = 100
        self._pods: dict[str, dict[str, Any]] = {}
        self._watches: list[queue.SimpleQueue[dict[str, Any] | None]] = []
        self.away = False
        """ True: reject all requests. """
        handler = type("Handler", (_Handler,), {"pods": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def kubeconfig(self, path: Path) -> Path:
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        named = {"name": "it", "cluster": {"server": url}, "user": {"token": "x"}}
        context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        config = {"current-context": "it", "clusters": [named], "users": [named], "contexts": [context]}
        path.write_text(json.dumps(config))
        return path

    def put(
        self,
        name: str,
        grant: dict[str, Any] | str | None = None,
        uid: str = "",
        created: int = 0,
        phase: str = "Running",
    ) -> None:
        """Create or change a pod; `created` is a number of seconds."""
        annotations = (
            {} if grant is None else {"orion.gpu/grant": grant if isinstance(grant, str) else json.dumps(grant)}
        )
        metadata = {"namespace": "default", "name": name, "uid": uid or f"uid-{name}", "annotations": annotations}
        metadata["creationTimestamp"] = f"2026-01-01T00:00:{created:02}Z"
        with self._lock:
            kind = "MODIFIED" if name in self._pods else "ADDED"
            self._pods[name] = {"metadata": metadata, "spec": {"nodeName": NODE}, "status": {"phase": phase}}
            self._notify(kind, self._pods[name])

    def delete(self, name: str) -> None:
        with self._lock:
            self._notify("DELETED", self._pods.pop(name))

    def cut(self) -> None:
        """Close every watch."""
        with self._lock:
            for watch in self._watches:
                watch.put(None)
            self._watches.clear()

    def stop(self) -> None:
        self.away = True
        self.cut()
        self._server.shutdown()
        self._server.server_close()

    def listed(self) -> dict[str, Any]:
        with self._lock:
            return {"metadata": {"resourceVersion": str(self._version)}, "items": list(self._pods.values())}

    def watch(self, since: int) -> Iterator[dict[str, Any]]:
        events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with self._lock:
            if since != self._version:
                yield {"type": "ERROR", "object": {"code": 410, "message": "it is too old"}}
                return
            self._watches.append(events)
        while (event := events.get()) is not None:
            yield event

    def _notify(self, kind: str, pod: dict[str, Any]) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        for watch in self._watches:
            watch.put({"type": kind, "object": json.loads(json.dumps(pod))})


class _Handler(BaseHTTPRequestHandler):
    pods: StandInPods

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if self.pods.away or url.path != "/api/v1/pods" or query.get("fieldSelector") != f"spec.nodeName={NODE}":
            self.send_error(503 if self.pods.away else 404)
            return
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            if "watch" not in query:
                self.wfile.write(json.dumps(self.pods.listed()).encode())
                return
            for event in self.pods.watch(int(query["resourceVersion"])):
                self.wfile.write(json.dumps(event).encode() + b"\n")
                self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""
