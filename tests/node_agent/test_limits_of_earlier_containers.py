"""The limit that processes know before they have joined is never that of the slot's earlier container."""

from orion.hook import KNOWN_LIMIT
from tests.node_agent.agent_in_cluster import Node, grant
from tests.node_agent.conftest import GPU, eventually

MIB = 1 << 20


def test_an_agent_that_asks_the_kubelet_in_vain_writes_no_limit_again(stopped_node: Node) -> None:
    node = stopped_node
    node.start()
    node.run("a", "be-3", grant(memoryLimitBytes=64 * MIB))
    limit = node.agent.slot("be-3") / KNOWN_LIMIT
    assert limit.read_text() == f"{64 * MIB}\n"
    node.agent.kill()
    limit.unlink()  # as the device plugin does when another container gets the slot
    node.stop()
    node.start()
    eventually(lambda: "be-3" in node.held(), "the agent knows the holder that the previous one has saved")
    assert node.slot("be-3").memory_limit_bytes == 64 * MIB
    assert not limit.exists()


def test_an_agent_that_begins_while_another_container_starts_writes_the_limit_of_that_one(stopped_node: Node) -> None:
    node = stopped_node
    node.start()
    node.run("a", "be-3", grant(memoryLimitBytes=64 * MIB))
    node.agent.kill()
    limit = node.agent.slot("be-3") / KNOWN_LIMIT
    limit.unlink()
    node.pods.put("b", grant(memoryLimitBytes=32 * MIB), created=1)
    node.kubelet.give("b", (GPU, "be-3"))
    node.start()
    eventually(lambda: limit.exists() and limit.read_text() == f"{32 * MIB}\n", "the limit is that of the new holder")


def test_a_container_that_starts_again_after_the_agent_did_knows_its_limit(stopped_node: Node) -> None:
    node = stopped_node
    node.start()
    node.run("a", "be-3", grant(memoryLimitBytes=64 * MIB))
    limit = node.agent.slot("be-3") / KNOWN_LIMIT
    node.agent.kill()
    node.start()
    eventually(lambda: "be-3" in node.held(), "the agent knows the holder that the previous one has saved")
    node.prepare("be-3")
    eventually(lambda: limit.exists() and limit.read_text() == f"{64 * MIB}\n", "the limit is written again")
