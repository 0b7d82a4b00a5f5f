"""A running pod as its node sees it, API server and kubelet away: its processes, its log, its seat at the agent."""

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
""" So many new ones show that a program computes: the first may be of the time before. """


@dataclass(frozen=True)
class Seat:
    """Where a process has joined: nothing of it changes as long as the process is managed."""

    gpu: str
    slot: str
    place: int
    generation: int
    process_id: int


@dataclass(frozen=True)
class RunningPod:
    """A pod of one of the examples' programs, which writes a line of JSON again and again."""

    gpu_node: GpuNode
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, gpu_node: GpuNode, pod: client.V1Pod) -> "RunningPod":
        """Take a pod from the API server's hands."""
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

    def said(self, event: str) -> list[dict[str, Any]]:
        """Return the lines about an event that its program has written, in all starts of its containers."""
        found = []
        for log in sorted(self.gpu_node.path("/var/log/pods").glob(f"*_{self.uid}/*/*.log")):
            for line in log.read_text(errors="replace").splitlines(keepends=True):
                said = line.partition(" F ")[2]
                if said.startswith("{") and said.endswith("}\n"):
                    found.append(json.loads(said))
        return [each for each in found if each["event"] == event]

    def computes(self) -> None:
        """Return when it has computed for a while from now on."""
        before = len(self._fruitful())
        eventually(
            lambda: len(self._fruitful()) >= before + REPORTS,
            what=f"{self.name} does not compute: {self.said('report')[-3:]}, {self.said('error')}",
        )

    def seats(self) -> list[Seat]:
        """Return where its processes have joined."""
        return [seat for _, seat in self._joined()]

    def seated(self) -> Seat:
        """Return the seat of its only process, when it has joined."""
        (seat,) = eventually(self._seats_now, what=f"{self.name} has not joined")
        return seat

    def slot(self) -> agent_pb2.Slot:
        """Return the slot that its only process has joined, as the agent sees it."""
        (found,) = self._joined()
        return found[0]

    def is_granted(self, limit: int) -> None:
        """Return when the slot of its only process allows so many bytes of memory.

        A container whose pod the agent does not know within a second begins under the default grant.
        """

        def granted() -> bool:
            return [slot.memory_limit_bytes for slot, _ in self._joined()] == [limit]

        eventually(granted, what=f"{self.name} has not its grant")

    def _seats_now(self) -> list[Seat]:
        with contextlib.suppress(NoAgent):
            return self.seats()
        return []

    def _joined(self) -> list[tuple[agent_pb2.Slot, Seat]]:
        processes = set(self.processes())
        return [
            (slot, Seat(gpu.uuid, slot.name, each.place, each.generation, each.process_id))
            for gpu in self.gpu_node.snapshot().gpus
            for slot in gpu.slots
            for each in slot.clients
            if each.process_id in processes
        ]

    def _fruitful(self) -> list[dict[str, Any]]:
        return [each for each in self.said("report") if each.get("count", each.get("steps"))]
