"""An hp slot for the successor of a pod: when the agent offers it, who may start in it, and what is left afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orion.node_agent.api.client import AgentClient, RequestRefused
from tests.node_agent.agent_in_cluster import Node, grant
from tests.node_agent.conftest import GPU, AgentProcess
from tests.waiting import eventually

WEB, NEWER, OTHER = "web-hash.1", "web-hash.2", "other-hash.1"


class RollingNode(Node):
    """A node with one hp slot, and what its plugin would tell the kubelet."""

    def begin(self, pod: str, slot: str, revision: str, created: int) -> None:
        """Start the container of an hp pod."""
        self.pods.put(pod, grant("hp"), created=created, revision=revision)
        self.kubelet.give(pod, (GPU, slot))
        self.prepare(slot)

    def take(self, pod: str, slot: str, revision: str) -> str:
        """Try to start another pod's container in a slot; return why it may not."""
        self.pods.put(pod, grant("hp"), created=9, revision=revision)
        self.kubelet.give(pod, (GPU, slot))

        def refused() -> str:
            try:
                self.prepare_once(slot)
            except RequestRefused as error:  # a plugin would start the container if the agent seemed to be away
                return str(error) if "not known yet" not in str(error) else ""
            return "no"

        return eventually(refused)

    def end(self, pod: str) -> None:
        """End a pod, as the kubelet and the operator tell it."""
        self.kubelet.give(pod)
        self.pods.delete(pod)

    def hp(self) -> dict[str, bool]:
        """The hp slots, and whether a further pod can get them or their pod keeps them."""
        with AgentClient(self.agent.root) as administrator:
            device = next(administrator.watch_devices()).devices[0]
        return {name: name not in device.closed for name in device.slots if name.startswith("hp-")}


@pytest.fixture
def node(stopped_agent: AgentProcess, socket_folder: Path) -> Iterator[RollingNode]:
    node = RollingNode(stopped_agent, socket_folder)
    node.start()
    yield node
    node.stop()


def test_a_rolling_update_gets_one_slot_more_and_leaves_one(node: RollingNode) -> None:
    node.begin("old", "hp-0", WEB, created=1)
    assert node.hp() == {"hp-0": True}
    node.pods.roll_out(NEWER)
    eventually(lambda: node.hp() == {"hp-0": True, "hp-1": True})
    node.begin("new", "hp-1", NEWER, created=2)
    eventually(lambda: node.hp() == {"hp-0": False, "hp-1": True}, "nobody gets the old pod's slot after it")
    node.pods.roll_out("")
    node.end("old")
    eventually(lambda: node.hp() == {"hp-1": True})
    node.pods.roll_out(WEB)
    eventually(lambda: node.hp() == {"hp-0": True, "hp-1": True}, "the next rolling update uses the other name")
    node.pods.roll_out("")
    eventually(lambda: node.hp() == {"hp-1": True}, "nobody has taken the slot")


def test_a_workload_without_a_pod_on_the_gpu_gets_no_slot(node: RollingNode) -> None:
    node.begin("old", "hp-0", WEB, created=1)
    node.pods.roll_out(OTHER)
    node.begin("training", "be-0", "", created=2)  # once this pod is known, so is the workload
    assert node.hp() == {"hp-0": True}


def test_only_a_new_pod_of_the_workload_starts_in_the_slot(node: RollingNode) -> None:
    node.begin("old", "hp-0", WEB, created=1)
    node.pods.roll_out(NEWER)
    eventually(lambda: "hp-1" in node.hp())
    for revision in (OTHER, WEB, ""):
        for _ in range(2):  # the kubelet tries again
            reason = node.take("outsider", "hp-1", revision)
            assert "default/old" in reason
            assert "default/outsider replaces none of them" in reason
    assert node.prepare("hp-0").pod == "default/old", "the old pod's container starts again"
    node.end("outsider")
    assert node.take("new", "hp-1", NEWER) == "no"


def test_the_pods_of_a_rolling_update_start_again_after_a_restart_of_the_agent(node: RollingNode) -> None:
    node.begin("old", "hp-0", WEB, created=1)
    node.pods.roll_out(NEWER)
    eventually(lambda: "hp-1" in node.hp())
    node.begin("new", "hp-1", NEWER, created=2)
    node.pods.roll_out("")
    node.agent.kill()
    node.start()
    eventually(lambda: sorted(node.hp()) == ["hp-0", "hp-1"] and sorted(node.hp().values()) == [False, True])
    assert node.prepare("hp-0").pod == "default/old"
    assert node.prepare("hp-1").pod == "default/new"


def test_a_refused_pod_is_still_refused_after_a_restart_of_the_agent(node: RollingNode) -> None:
    node.begin("old", "hp-0", WEB, created=1)
    node.pods.roll_out(NEWER)
    eventually(lambda: "hp-1" in node.hp())
    assert "default/outsider replaces none of them" in node.take("outsider", "hp-1", OTHER)
    node.agent.kill()
    node.start()
    assert "default/outsider replaces none of them" in node.take("outsider", "hp-1", OTHER)
    assert node.prepare("hp-0").pod == "default/old"
