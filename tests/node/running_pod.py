"""A running pod as its node sees it: its processes, its log, and its clients as the agent reports them.

This class asks neither the API server nor the kubelet, so tests can use it while these are away.
"""

import contextlib
import json
from dataclasses import dataclass
from typing import Any

from kubernetes import client

from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import NoAgent
from tests.node.gpu_tenants import GpuNode
from tests.waiting import eventually

REPORTS = 3
""" The number of new reports that show that a program computes; the first may cover time before the call. """


@dataclass(frozen=True)
class JoinedClient:
    """A process that has joined a slot. None of its fields changes as long as the process is managed."""

    gpu: str
    slot: str
    client_index: int
    generation: int
    process_id: int


@dataclass(frozen=True)
class RunningPod:
    """A pod with one of the examples' programs, which writes lines of JSON."""

    gpu_node: GpuNode
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, gpu_node: GpuNode, pod: client.V1Pod) -> "RunningPod":
        """Make a RunningPod from the API server's object."""
        return cls(gpu_node, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)

    def processes(self) -> list[int]:
        """Return the processes of the pod's program, by the node's ids."""
        found = []
        for entry in self.gpu_node.path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (
                    entry.name.isdigit()
                    and self.uid in (entry / "cgroup").read_text()
                    and (entry / "comm").read_text() == "workload\n"
                ):
                    found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """Kill the pod's processes, and return when they are gone."""
        processes = self.processes()
        assert processes, f"{self.name} does not run"
        self.gpu_node.node.run(["kill", "-KILL", *map(str, processes)])
        eventually(lambda: not set(processes) & set(self.processes()))

    def printed(self, event: str) -> list[dict[str, Any]]:
        """Return the lines with this event that the pod's program has written, in all starts of its containers."""
        found = []
        for log in sorted(self.gpu_node.path("/var/log/pods").glob(f"*_{self.uid}/*/*.log")):
            for line in log.read_text(errors="replace").splitlines(keepends=True):
                text = line.partition(" F ")[2]
                if text.startswith("{") and text.endswith("}\n"):
                    found.append(json.loads(text))
        return [each for each in found if each["event"] == event]

    def computes(self) -> None:
        """Wait until the program has computed for a while after this call."""
        before = len(self._reports_of_work())
        eventually(
            lambda: len(self._reports_of_work()) >= before + REPORTS,
            what=f"{self.name} does not compute: {self.printed('report')[-3:]}, {self.printed('error')}",
        )

    def clients(self) -> list[JoinedClient]:
        """Return the pod's processes that have joined a slot."""
        return [joined for _, joined in self._joined()]

    def joined_client(self) -> JoinedClient:
        """Wait until the pod's only process has joined a slot, and return it as a client."""
        (joined,) = eventually(self._clients_now, what=f"{self.name} has not joined")
        return joined

    def slot(self) -> agent_pb2.Slot:
        """Return the slot that the pod's only process has joined, as the agent sees it."""
        (found,) = self._joined()
        return found[0]

    def is_granted(self, limit: int) -> None:
        """Wait until the slot of the pod's only process has this memory limit, in bytes.

        A container whose pod the agent does not know within a second begins under the default grant.
        """

        def granted() -> bool:
            return [slot.memory_limit_bytes for slot, _ in self._joined()] == [limit]

        eventually(granted, what=f"{self.name} does not have its grant")

    def _clients_now(self) -> list[JoinedClient]:
        with contextlib.suppress(NoAgent):
            return self.clients()
        return []

    def _joined(self) -> list[tuple[agent_pb2.Slot, JoinedClient]]:
        processes = set(self.processes())
        return [
            (slot, JoinedClient(gpu.uuid, slot.name, each.place, each.generation, each.process_id))
            for gpu in self.gpu_node.snapshot().gpus
            for slot in gpu.slots
            for each in slot.clients
            if each.process_id in processes
        ]

    def _reports_of_work(self) -> list[dict[str, Any]]:
        return [each for each in self.printed("report") if each.get("count", each.get("steps"))]
