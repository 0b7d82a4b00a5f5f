"""If the agent's root is full (a file system like /run), clients still join, run, and continue under the next agent."""

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
    """An agent's root directory on a file system of 512 KiB."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self) -> None:
        """Use all space and inodes."""
        try:
            for number in range(1_000):
                (self.path / f"filler-{number}").write_bytes(b"x" * 4096)
        except OSError:
            pass

    def free(self) -> None:
        """Free the space and inodes."""
        for path in self.path.glob("filler-*"):
            path.unlink()


@pytest.fixture
def small_root(socket_folder: Path) -> Iterator[SmallRoot]:
    require_root()
    root = socket_folder / "root"  # the path of `stopped_agent`'s root
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,nr_inodes=128", "orion-test", root], check=True)
    yield SmallRoot(root)
    subprocess.run(["umount", "--lazy", root], check=True)


def test_clients_join_while_the_root_is_full_and_saved_clients_return(
    small_root: SmallRoot, stopped_agent: AgentProcess
) -> None:
    agent = stopped_agent
    agent.start()
    with ProtocolClient(agent.slot("hp-0")).join() as hp:
        small_root.fill()
        with ProtocolClient(agent.slot("be-0")).join() as be:
            be.receive_until({hp.key})
            agent.kill()
            agent.start()  # while the root is full
            assert hp.return_to_agent().returned == 1
            with ProtocolClient(agent.slot("be-1")).join() as later:
                later.receive_until({hp.key})
                small_root.free()
                state = agent.root / "state.json"
                eventually(lambda: '"slot": "be-1", "place"' in state.read_text(), "the client is in the state file")
                agent.kill()
                agent.start()
                assert later.return_to_agent().returned == 1
                assert hp.return_to_agent().returned == 1


def test_a_container_starts_with_its_grant_while_the_root_is_full(
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
