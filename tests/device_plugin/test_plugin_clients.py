"""From Allocate to a managed process: the real agent, the real plugin, and real clients with the hook.

On a machine with NVIDIA GPUs, as root: `ORION_TEST_GPUS=real pytest tests/device_plugin/test_plugin_clients.py`.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.device_plugin.conftest import BE, HP
from tests.device_plugin.plugin_process import eventually
from tests.device_plugin.real_node import RealNode
from tests.device_plugin.stand_in_kubelet import StartFailed


@pytest.fixture
def bare_whole_node(socket_folder: Path) -> Iterator[RealNode]:
    """A node on which nothing runs yet."""
    node = RealNode(socket_folder)
    yield node
    node.close()


@pytest.fixture
def whole_node(bare_whole_node: RealNode) -> RealNode:
    """A node with kubelet, agent and plugin, and 1 hp and 3 be slots for each GPU."""
    return begun(bare_whole_node)


def begun(node: RealNode, kubelet_runs: bool = False) -> RealNode:
    node.start_agent()
    if not kubelet_runs:
        node.kubelet.start()
    node.plugin()
    eventually(lambda: node.kubelet.allocatable(HP) >= 1, "hp slots are allocatable")
    eventually(lambda: node.kubelet.allocatable(BE) == 3 * node.kubelet.allocatable(HP), "and be slots")
    return node


def test_processes_of_two_pods_join_their_slots(whole_node: RealNode) -> None:
    node = whole_node
    hp, be = node.kubelet.admit("chat", "main", hp=1), node.kubelet.admit("train", "main", be=1)
    for pod, given in (("chat", hp), ("train", be)):
        client = node.start(pod)
        assert client.do("begin")["gpus"] == [given[0].partition("::")[0]]
        client.do("work 3")
        node.until_joined(client, given[0])


def test_a_preload_file_alone_loads_the_hook(bare_whole_node: RealNode) -> None:
    node = bare_whole_node
    node.configure(preload="file")
    begun(node)
    given = node.kubelet.admit("train", "main", be=1)
    client = node.start("train", preload="")
    client.do("begin")
    node.until_joined(client, given[0])


def test_a_container_cannot_change_its_mounts(whole_node: RealNode) -> None:
    node = whole_node
    node.kubelet.admit("train", "main", be=1)
    client = node.start("train")
    client.do("begin")
    inside = Path(f"/proc/{client.pid}/root/run/orion")
    folders = [inside / "lib", *(inside / "slots").iterdir()]
    assert len(folders) == 2
    for folder in folders:
        with pytest.raises(OSError, match="Read-only file system"):
            (folder / "mine").write_text("")


def test_a_container_that_restarts_joins_its_slot_again(whole_node: RealNode) -> None:
    node = whole_node
    given = node.kubelet.admit("train", "main", be=1)
    for restart_kubelet in (False, True):
        client = node.start("train")
        client.do("begin")
        node.until_joined(client, given[0])
        client.end()
        if restart_kubelet:
            node.kubelet.restart()
            eventually(lambda: node.kubelet.allocatable(BE) >= 3, "be slots are allocatable again")


def test_a_client_continues_while_agent_and_plugin_are_replaced(whole_node: RealNode) -> None:
    node = whole_node
    given = node.kubelet.admit("train", "main", be=1)
    client = node.start("train")
    client.do("begin")
    node.until_joined(client, given[0])
    node.plugins[0].end()
    node.kill_agent()
    client.do("work 3")
    node.start_agent()
    node.plugin()
    eventually(lambda: node.kubelet.allocatable(BE) >= 3, "be slots are allocatable again")
    node.until_joined(client, given[0])
    client.do("work 3")


def test_a_container_that_starts_without_an_agent_joins_the_next_agent(whole_node: RealNode) -> None:
    node = whole_node
    node.kill_agent()
    given = node.kubelet.admit("train", "main", be=1)
    client = node.start("train")
    client.do("begin")
    client.do("work 3")
    node.start_agent()
    eventually(lambda: client.do("work 1") and node.slot_of(client) == given[0], "it has joined its slot")


def test_hold_delays_a_container_until_the_agent_runs(bare_whole_node: RealNode) -> None:
    node = bare_whole_node
    node.configure(onNoAgent="hold")
    begun(node)
    given = node.kubelet.admit("train", "main", be=1)
    node.kill_agent()
    with pytest.raises(StartFailed, match="onNoAgent is hold"):
        node.start("train")
    node.start_agent()
    node.until_connected()
    client = node.start("train")
    client.do("begin")
    node.until_joined(client, given[0])


def test_after_a_reboot_a_pod_is_managed_again(whole_node: RealNode) -> None:
    node = whole_node
    given = node.kubelet.admit("train", "main", be=1)
    node.start("train").do("begin")
    node.containers[-1].end()
    node.plugins[0].close()
    node.kill_agent()
    node.kubelet.stop()
    shutil.rmtree(node.root)
    node.kubelet.start()
    (node.root / "gpus" / given[0].partition("::")[0]).mkdir(parents=True)  # as a container runtime does
    begun(node, kubelet_runs=True)
    client = node.start("train")
    client.do("begin")
    node.until_joined(client, given[0])


def test_slots_per_gpu_change_without_a_restart(whole_node: RealNode) -> None:
    node = whole_node
    gpus = node.kubelet.allocatable(HP)
    given = node.kubelet.admit("train", "main", be=1)
    client = node.start("train")
    client.do("begin")
    node.configure(slots={"hp": 2, "be": 5})
    eventually(lambda: node.kubelet.allocatable(BE) == 5 * gpus, "each GPU has five be slots")
    eventually(lambda: node.kubelet.allocatable(HP) == 2 * gpus, "and two hp slots")
    node.until_joined(client, given[0])
    assert not set(given) & set(node.kubelet.admit("next", "main", be=1))
