"""Runs the agent of a node as a process, with stand-ins for the kubelet and the operator."""

from pathlib import Path
from typing import Any

from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from tests.node_agent.node_stand_in import StandInKubelet
from tests.node_agent.operator_stand_in import StandInOperator
from tests.node_agent.running_agent import GPU, AgentProcess
from tests.waiting import eventually

SECONDS = 30.0


def grant(priority: str = "be", container: str = "main", share: str = "a-share", **fields: Any) -> dict[str, Any]:
    """Return a pod's grant; `policy` and `failClosed` belong to the pod, the other fields to its container."""
    annotation: dict[str, Any] = {
        "format": 1,
        "priority": priority,
        "share": share,
        "shareUid": "u",
        "shareGeneration": 3,
    }
    annotation |= {name: fields.pop(name) for name in ("policy", "failClosed") if name in fields}
    return annotation | {"containers": {container: {"slots": 1, **fields}}}


class Node:
    """An agent with a stand-in kubelet and a stand-in operator."""

    def __init__(self, agent: AgentProcess, folder: Path) -> None:
        self.agent = agent
        self.kubelet = StandInKubelet(folder / "kubelet.sock")
        self.kubelet.start()
        self.pods = StandInOperator(folder)
        self._options = [*self.pods.options(), "--pod-resources", str(self.kubelet.socket)]

    def start(self, *options: str) -> None:
        self.agent.start(*self._options, *options)

    def run(
        self, pod: str, slot: str, annotation: dict[str, Any] | None = None, created: int = 0
    ) -> agent_pb2.PreparedSlot:
        """Start a pod's container in a slot, as the kubelet does; return when the agent knows the pod."""
        self.pods.put(pod, annotation, created=created)
        self.kubelet.give(pod, (GPU, slot))
        return self.prepare(slot)

    def prepare(self, slot: str) -> agent_pb2.PreparedSlot:
        """Prepare a slot again until its pod is known: on a loaded machine that can take longer than a second."""

        def prepared() -> agent_pb2.PreparedSlot | None:
            answer = self.prepare_once(slot)
            return answer if answer.pod else None

        found = eventually(prepared, f"the pod of {slot} is known")
        assert found
        return found

    def prepare_once(self, slot: str) -> agent_pb2.PreparedSlot:
        with AgentClient(self.agent.root, timeout=SECONDS) as administrator:
            return administrator.prepare_slot(GPU, slot)

    def slot(self, name: str) -> agent_pb2.Slot:
        return {slot.name: slot for slot in self.gpu().slots}[name]

    def gpu(self) -> agent_pb2.Gpu:
        with AgentClient(self.agent.root) as administrator:
            return administrator.snapshot().gpus[0]

    def conditions(self) -> dict[str, str]:
        return {each.reason: each.message for each in self.gpu().conditions}

    def held(self) -> list[str]:
        with AgentClient(self.agent.root) as administrator:
            return list(next(administrator.watch_devices()).devices[0].held)

    def advertised(self) -> list[str]:
        with AgentClient(self.agent.root) as administrator:
            return list(next(administrator.watch_devices()).devices[0].slots)

    def stop(self) -> None:
        self.kubelet.stop()
        self.pods.stop()
