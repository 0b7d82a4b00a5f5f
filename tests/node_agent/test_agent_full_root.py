"""An agent whose root, a file system of its own as /run is, has no room left: clients come, go on, and outlive it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.containers import require_root
from tests.node_agent.agent_in_cluster import Node, grant
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient

MIB = 1 << 20


class SmallRoot:
    """The agent's root, on 512 KiB."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Take what there is of space and inodes."""
        try:
            for number in range(1_000):
                (self.path / f"filler-{number}").write_bytes(b"x" * 4096)
        except OSError:
            pass

    def free(self) -> None:
        """Give it back."""
        for path in self.path.glob("filler-*"):
            path.unlink()


@pytest.fixture
def small_root(socket_folder: Path) -> Iterator[SmallRoot]:
    require_root()
    root = socket_folder / "root"  # where `stopped_agent` has its own
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,nr_inodes=128", "orion-test", root], check=True)
    yield SmallRoot(root)
    subprocess.run(["umount", "--lazy", root], check=True)


def test_clients_come_and_go_on_and_the_next_agent_knows_those_of_before(
    small_root: SmallRoot, stopped_agent: AgentProcess
) -> None:
    agent = stopped_agent
    agent.start()
    with ProtocolClient(agent.slot("hp-0")).join() as hp:
        small_root.fill()
        with ProtocolClient(agent.slot("be-0")).join() as be:
            be.hear_until({hp.key})
            agent.kill()
            agent.start()  # while there is no room
            assert hp.come_back().returned == 1
            with ProtocolClient(agent.slot("be-1")).join() as later:
                later.hear_until({hp.key})
                small_root.free()
                state = agent.root / "state.json"
                eventually(lambda: '"slot": "be-1", "place"' in state.read_text(), "it is written")
                agent.kill()
                agent.start()
                assert later.come_back().returned == 1
                assert hp.come_back().returned == 1


def test_a_container_begins_and_its_grant_applies(
    small_root: SmallRoot, stopped_agent: AgentProcess, socket_folder: Path
) -> None:
    node = Node(stopped_agent, socket_folder)
    try:
        node.start()
        small_root.fill()
        prepared = node.run("a", "be-0", grant(memoryLimitBytes=MIB))
        assert (prepared.pod, prepared.slot.memory_limit_bytes) == ("default/a", MIB)
        stopped_agent.kill()
        node.start()
        eventually(lambda: node.slot("be-0").memory_limit_bytes == MIB, f"the grant of be-0 of {GPU}")
    finally:
        node.stop()
