"""A node that chooses: agent, device plugin and DRA driver as processes. One of both gives slots, the other one waits.

tests/node has a real kubelet, and tests/node_agent/test_ownership.py any order of events.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.node_agent.api.client import AgentClient
from tests.device_plugin.plugin_process import PluginProcess
from tests.device_plugin.stand_in_kubelet import AdmissionFailed
from tests.device_plugin.stand_in_kubelet import StandInKubelet as DeviceManager
from tests.dra_driver.conftest import DriverNode, claim, result
from tests.node_agent.agent_in_cluster import grant
from tests.node_agent.node_stand_in import StandInKubelet as PodResources
from tests.node_agent.operator_stand_in import StandInOperator
from tests.waiting import eventually

BE = "orion.gpu/be"
EVERY = 6
""" be slots of the two GPUs. """


class ChoosingNode(DriverNode):
    """A node with both programs, and an operator that sends its label."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.operator = StandInOperator(_made(folder / "operator"))
        self.listing = PodResources(folder / "pod-resources.sock")
        self.devices = DeviceManager(_made(folder / "device-plugins"))
        self.listing.start()
        self.devices.start()
        self.options.append("--by-node")
        configuration = ("--configuration", str(folder / "node.yaml"), "--by-node", "--agent-patience", "1")
        self.plugin = PluginProcess(
            folder, self.devices.folder, self.root, folder / "plugin-hook", *configuration,
            environment={"ORION_SIM_STATE": str(folder / "sim")},
        )  # fmt: skip

    def begin_agent(self) -> None:
        options = [*self.operator.options(), "--pod-resources", str(self.listing.socket)]
        self.begin("agent", "agent", "--gpus", "simulated", *options, "--by-node", "--handover-seconds", "0.5")
        eventually(self.agent_answers, "the agent answers")

    def begin_all(self, label: str) -> None:
        self.operator.choose(label)
        self.begin_agent()
        self.plugin.start()
        self.begin_driver()

    def start_by_plugin(self, pod: str) -> str:
        """Start a pod as kubelet and operator see it; return its slot."""
        (slot,) = self.devices.admit(pod, "main", be=1)
        gpu, name = slot.split("::")
        self.listing.give(pod, (gpu, name))
        self.operator.put(pod, grant())
        self.devices.start_container(pod, "main")
        return slot

    def end_by_plugin(self, pod: str) -> None:
        self.devices.remove(pod)
        self.listing.give(pod)
        self.operator.delete(pod)

    def giver(self) -> str:
        with AgentClient(self.root) as agent:
            return str(next(agent.watch_devices()).giver)

    def until(self, giver: str, offered: int) -> None:
        eventually(lambda: self.giver() == giver, lambda: f"{giver} gives; {self.log('agent')}")
        eventually(
            lambda: self.devices.allocatable(BE) == offered, lambda: f"the plugin offers {offered}; {self.plugin.log}"
        )

    def close(self) -> None:
        self.plugin.close()
        super().close()
        self.devices.stop()
        self.listing.stop()
        self.operator.stop()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture
def choosing(socket_folder: Path) -> Iterator[ChoosingNode]:
    node = ChoosingNode(socket_folder)
    yield node
    node.close()


def logged(node: ChoosingNode, name: str, *sentences: str) -> None:
    def log() -> str:
        return node.plugin.log if name == "plugin" else node.log(name)

    eventually(lambda: all(each in log() for each in sentences), f"{sentences} in {log()}")


def test_there_and_back_with_pods_that_hold_slots(choosing: ChoosingNode) -> None:
    choosing.begin_all("device-plugin")
    choosing.until("device-plugin", EVERY)
    logged(choosing, "driver", "the DRA driver waits: the device plugin gives this node's slots")
    choosing.start_by_plugin("serve")

    choosing.operator.choose("dra")
    logged(choosing, "driver", "asks for dra", "these do: default/serve")
    eventually(lambda: choosing.devices.allocatable(BE) == 1, "only the slot that is held stays")
    with pytest.raises(AdmissionFailed):
        choosing.devices.admit("late", "main", be=2)
    choosing.devices.start_container("serve", "main")  # a restart goes on
    assert choosing.giver() == "device-plugin"

    choosing.end_by_plugin("serve")
    choosing.until("dra", 0)
    logged(choosing, "plugin", "the device plugin waits: the DRA driver gives this node's slots")
    assert choosing.plugin.metrics()["orion_device_plugin_waits"] == 1
    gpu = choosing.gpus()[0]
    choosing.server.put(claim("one", result(gpu, share="s1")))
    choosing.kubelet.prepared("one")
    assert "the DRA driver gives this node's slots" in choosing.devices.ask(BE, "PreStartContainer", [f"{gpu}::be-2"])

    choosing.operator.choose("device-plugin")
    logged(choosing, "plugin", "asks for device-plugin", "these do: n/pod")
    assert choosing.devices.allocatable(BE) == 0
    choosing.kubelet.unprepare("one")
    choosing.until("device-plugin", EVERY)
    choosing.start_by_plugin("serve")


def test_an_agent_that_is_killed_while_the_node_changes_hands_lets_nobody_in(choosing: ChoosingNode) -> None:
    choosing.begin_all("device-plugin")
    choosing.until("device-plugin", EVERY)
    choosing.start_by_plugin("serve")
    choosing.operator.choose("dra")
    eventually(lambda: choosing.devices.allocatable(BE) == 1, "only the slot that is held stays")

    choosing.end("agent")
    choosing.operator.away = True
    choosing.begin_agent()  # without the operator it knows the label from before
    with AgentClient(choosing.root) as agent:
        devices = next(agent.watch_devices())
    assert (devices.giver, {each.cordoned for each in devices.devices}) == ("device-plugin", {True})

    choosing.operator.away = False
    choosing.end_by_plugin("serve")
    choosing.until("dra", 0)


def test_after_a_boot_a_claim_that_the_kubelet_knows_keeps_its_driver(choosing: ChoosingNode) -> None:
    choosing.begin_all("dra")
    choosing.until("dra", 0)
    gpu = choosing.gpus()[0]
    choosing.server.put(claim("one", result(gpu, share="s1")))
    choosing.kubelet.prepared("one")
    choosing.end("agent")
    for name in ("owner", "state.json"):
        (choosing.root / name).unlink()
    choosing.listing.claimed = ["pod"]
    choosing.operator.choose("device-plugin")
    choosing.begin_agent()
    logged(choosing, "plugin", "these do: n/pod")
    assert choosing.giver() == "dra"
    eventually(lambda: choosing.slots() == {"one s1": f"{gpu}::be-0"}, "the agent knows the claim again")

    choosing.listing.claimed = []
    choosing.kubelet.unprepare("one")
    choosing.until("device-plugin", EVERY)


def test_a_pod_that_is_bound_and_has_not_started_holds_its_node(choosing: ChoosingNode) -> None:
    choosing.begin_all("dra")
    choosing.until("dra", 0)
    choosing.operator.put("bound", grant())
    choosing.operator.choose("device-plugin")
    logged(choosing, "plugin", "these do: default/bound")
    gpu = choosing.gpus()[0]
    choosing.server.put(claim("one", result(gpu, share="s1")))  # the scheduler allocated it before
    choosing.kubelet.prepared("one")
    choosing.operator.put("bound", grant(), ended=True)
    choosing.kubelet.unprepare("one")
    choosing.until("device-plugin", EVERY)


def test_without_an_agent_each_program_keeps_to_the_last_answer(choosing: ChoosingNode) -> None:
    choosing.begin_all("device-plugin")
    choosing.until("device-plugin", EVERY)
    choosing.end("agent")
    choosing.end("driver")
    choosing.begin_driver()
    choosing.server.put(claim("one", result(json.loads(_saved(choosing))["devices"][0]["uuid"])))
    answer = choosing.kubelet.prepare("one")["one"]
    assert "the device plugin gives this node's slots: delete the pod" in answer.error
    assert choosing.devices.allocatable(BE) == EVERY


def test_a_program_that_was_away_when_the_node_changed_hands_knows_it_without_an_agent(choosing: ChoosingNode) -> None:
    choosing.begin_all("device-plugin")
    choosing.until("device-plugin", EVERY)
    choosing.plugin.end()
    choosing.operator.choose("dra")
    eventually(lambda: choosing.giver() == "dra", choosing.log("agent"))
    choosing.end("agent")
    registrations = len(choosing.devices.registrations)
    choosing.plugin.start()
    choosing.plugin.until_logged("the device plugin waits: the DRA driver gives this node's slots")
    eventually(lambda: len(choosing.devices.registrations) >= registrations + 2, "the plugin is registered")
    eventually(lambda: choosing.plugin.ask("/readyz")[0] == 200, "the kubelet watches both resources")
    assert choosing.devices.allocatable(BE) == 0


def _saved(node: ChoosingNode) -> str:
    return (node.root / "dra-driver.json").read_text()
