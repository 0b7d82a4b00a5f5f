"""Pods on a GPU in mode mps: the real agent, the plugin and `orion mps-daemon`; the kubelet is a stand-in.

On a machine with NVIDIA GPUs, as root: `ORION_TEST_GPUS=real pytest tests/device_plugin/test_plugin_mps.py`.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.node_agent.api import agent_pb2
from orion.node_agent.mps.folder import MpsFolder, Phase, Wanted
from tests.device_plugin.conftest import BE, HP
from tests.device_plugin.plugin_process import DEADLINE, eventually
from tests.device_plugin.real_node import REAL, Container, RealNode
from tests.device_plugin.stand_in_kubelet import StartFailed
from tests.loaded import Started, start


class MpsNode(RealNode):
    """A node whose GPU is in mode mps. The test requests the mode itself, because there is no GPUDevice to do so."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.modes = MpsFolder(self.root)
        self.mps: Started | None = None

    def start_mps(self) -> None:
        with (self.folder / "mps.log").open("ab") as log:
            self.mps = start("orion.cli", ["mps-daemon", "--root", str(self.root)], log)
        eventually(self.modes.daemon_lives, "the MPS daemon runs")

    def end_mps(self) -> None:
        if self.mps is not None:
            self.mps.send_signal(signal.SIGTERM)
            self.mps.wait(DEADLINE)
            self.mps = None

    def begin(self) -> str:
        """Start everything; return the GPU's UUID."""
        self.start_agent()
        gpu = self.snapshot().gpus[0].uuid
        self.kill_agent()
        self.configure(gpus=[gpu])  # on a machine with several GPUs, pods get slots of this one only
        self.modes.want(gpu, Wanted(simulated=not REAL))
        self.start_mps()
        self.start_agent()
        self.kubelet.start()
        self.plugin()
        self.until_phase(gpu, Phase.RUNNING)
        eventually(lambda: self.kubelet.allocatable(HP) >= 1, "hp slots are allocatable")
        eventually(lambda: self.kubelet.allocatable(BE) >= 3, "be slots are allocatable")
        return gpu

    def until_phase(self, gpu: str, phase: Phase) -> None:
        eventually(lambda: (state := self.modes.state(gpu)) is not None and state.phase is phase, f"{gpu} is {phase}")

    def client(self, container: Container) -> agent_pb2.Client | None:
        for gpu in self.snapshot().gpus:
            for slot in gpu.slots:
                for client in slot.clients:
                    if client.process_id == container.pid:
                        return client
        return None

    def conditions(self) -> dict[str, str]:
        """Return the messages of all conditions of the GPUs and their clients, by reason."""
        found = {}
        for gpu in self.snapshot().gpus:
            for each in [*gpu.conditions, *(each for s in gpu.slots for c in s.clients for each in c.conditions)]:
                found[each.reason] = each.message
        return found

    def close(self) -> None:
        for container in self.containers:
            container.end()
        self.end_mps()
        super().close()


@pytest.fixture
def node(socket_folder: Path) -> Iterator[MpsNode]:
    made = MpsNode(socket_folder)
    yield made
    made.close()


def joined(node: MpsNode, pod: str) -> Container:
    """Start a container of an admitted pod, and check that its process shares its context through the MPS server."""
    client = node.start(pod)
    client.do("begin")
    client.do("work 3")
    eventually(lambda: (seen := node.client(client)) is not None and seen.shares_context, f"{pod} shares its context")
    return client


def have_lost_their_contexts(clients: list[Container]) -> bool:
    """Run work in all clients; return whether all fail. Work still succeeds shortly after NVIDIA's servers end."""
    lost = 0
    for client in clients:
        try:
            client.do("work 3")
        except AssertionError as error:
            lost += "CUDA result" in str(error)
    return lost == len(clients)


def test_pods_of_one_gpu_share_their_contexts(node: MpsNode) -> None:
    node.begin()
    for pod, role in (("chat", "hp"), ("train", "be")):
        node.kubelet.admit(pod, "main", **{role: 1})
        joined(node, pod)
    assert "MixedContexts" not in node.conditions()


def test_a_control_daemon_that_dies_is_reported_and_the_next_containers_work(node: MpsNode) -> None:
    gpu = node.begin()
    clients = []
    for pod in ("one", "two"):
        node.kubelet.admit(pod, "main", be=1)
        clients.append(joined(node, pod))
    state = node.modes.state(gpu)
    assert state is not None
    ends = [*state.servers, state.process_id] if REAL else [state.process_id]
    for process_id in ends:
        os.kill(process_id, signal.SIGKILL)
    eventually(lambda: have_lost_their_contexts(clients), "their contexts are lost")
    eventually(lambda: have_lost_their_contexts(clients) and "ContextLost" in node.conditions(), "and that is reported")
    eventually(lambda: "SharedFault" in node.conditions(), "and the shared fault is reported")
    print(node.conditions())
    for client in clients:
        client.end()
    node.until_phase(gpu, Phase.RUNNING)
    joined(node, "one")


def test_while_no_control_daemon_runs_no_container_starts_in_another_mode(node: MpsNode) -> None:
    gpu = node.begin()
    node.kubelet.admit("one", "main", be=1)
    held = joined(node, "one")
    node.end_mps()
    with pytest.raises(StartFailed, match="no MPS daemon runs on the node"):
        node.start("one")
    eventually(lambda: node.kubelet.allocatable(HP) == 0, "no further pods come")
    node.start_mps()
    node.until_phase(gpu, Phase.RUNNING)
    held.end()
    eventually(lambda: node.kubelet.allocatable(HP) == 1, "pods may come again")
    joined(node, "one")
