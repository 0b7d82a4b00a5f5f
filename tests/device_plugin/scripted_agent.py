"""A fake node agent for tests of the device plugin alone. It sends a test's snapshots over the real gRPC interface."""

import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from orion.node_agent.api import agent_pb2, agent_pb2_grpc

GPUS = [f"GPU-{number:08d}-0000-4000-8000-000000000000" for number in range(16)]


def devices(gpus: int = 1, hp: int = 1, be: int = 3, **changes: Any) -> agent_pb2.Devices:
    """Return a snapshot of `gpus` GPUs, equal except for index and UUID; `changes` replace fields of each GPU."""
    slots = [*(f"hp-{number}" for number in range(hp)), *(f"be-{number}" for number in range(be))]
    values: dict[str, Any] = {
        "memory_bytes": 80 << 30,
        "healthy": True,
        "model": "A name",
        "simulated": True,
        "slots": slots,
    } | changes
    return agent_pb2.Devices(
        devices=[agent_pb2.Device(uuid=GPUS[index], index=index, minor=index, **values) for index in range(gpus)]
    )


class ScriptedAgent(agent_pb2_grpc.AgentServicer):
    """Serves `root`/agent.sock. `send` sends a new snapshot; `prepared` lists the slots of all PrepareSlot requests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.snapshot = devices()
        self.fail_closed = False
        self.knows_pods = True
        """ Whether the agent knows which pod holds a slot; an agent that has just started may not know. """

        self.refuses = ""
        """ The error text of every PrepareSlot; empty: PrepareSlot succeeds. """

        self.prepared: list[str] = []
        self._listeners: list[queue.SimpleQueue[agent_pb2.Devices | None]] = []
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None

    def start(self) -> "ScriptedAgent":
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "agent.sock").unlink(missing_ok=True)
        self._server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        agent_pb2_grpc.add_AgentServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(f"unix:{self.root}/agent.sock")
        self._server.start()
        return self

    @property
    def connected(self) -> bool:
        """Whether a plugin has connected since the agent's last start."""
        with self._lock:
            return bool(self._listeners)

    def stop(self) -> None:
        if self._server is not None:
            with self._lock:
                for listener in self._listeners:
                    listener.put(None)
                self._listeners.clear()
            self._server.stop(None).wait()
            self._server = None

    def send(self, snapshot: agent_pb2.Devices) -> None:
        with self._lock:
            self.snapshot = snapshot
            for listener in self._listeners:
                listener.put(snapshot)

    def WatchDevices(self, request: Any, context: Any) -> Iterator[agent_pb2.Devices]:  # noqa: N802
        listener: queue.SimpleQueue[agent_pb2.Devices | None] = queue.SimpleQueue()
        with self._lock:
            listener.put(self.snapshot)
            self._listeners.append(listener)
        context.add_callback(lambda: listener.put(None))
        while (snapshot := listener.get()) is not None:
            yield snapshot

    def PrepareSlot(self, request: Any, context: Any) -> agent_pb2.PreparedSlot:  # noqa: N802
        if self.refuses:
            context.abort(grpc.StatusCode.NOT_FOUND, self.refuses)
        self.prepared.append(f"{request.gpu}::{request.name}")
        if not self.knows_pods:
            return agent_pb2.PreparedSlot()
        return agent_pb2.PreparedSlot(fail_closed=self.fail_closed, pod="default/pod")
