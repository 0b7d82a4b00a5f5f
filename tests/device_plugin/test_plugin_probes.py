"""The plugin's answers to the kubelet's probes."""

import contextlib
import os
import shutil
import socket
from pathlib import Path

from tests.device_plugin.conftest import Node
from tests.device_plugin.plugin_process import DEADLINE, eventually

OK = (200, "ok\n")


def test_a_plugin_is_ready_while_the_kubelet_watches_it(bare_node: Node) -> None:
    node = bare_node
    plugin = node.plugin()
    assert plugin.ask("/readyz") == (503, "the node's agent has not yet reported its GPUs\n")
    node.agent.start()
    eventually(lambda: "the kubelet does not watch orion.gpu/hp and orion.gpu/be" in plugin.ask("/readyz")[1])
    node.kubelet.start()
    eventually(lambda: plugin.ask("/readyz") == OK, "it is registered")
    node.kubelet.stop()
    eventually(lambda: plugin.ask("/readyz")[0] == 503, "no kubelet watches it")
    node.kubelet.start()
    eventually(lambda: plugin.ask("/readyz") == OK, "it is registered again")
    node.agent.stop()  # its last snapshot stays in force
    assert plugin.ask("/readyz") == OK


def test_a_plugin_is_alive_without_kubelet_and_agent(bare_node: Node) -> None:
    assert bare_node.plugin().ask("/healthz") == OK


def test_probes_are_answered_when_one_client_opens_many_connections(bare_node: Node) -> None:
    plugin = bare_node.plugin()
    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(("127.0.0.1", plugin.metrics_port), DEADLINE))
        for _ in range(20):
            assert plugin.ask("/healthz") == OK
        assert plugin.metrics()["orion_device_plugin_agent_connected"] == 0


def test_a_plugin_ends_once_somebody_has_removed_a_folder_that_its_container_mounts(bare_node: Node) -> None:
    # The next start of its container mounts the folder that the node has by then.
    folder = bare_node.folder / "mounted"
    folder.mkdir()
    mounted = os.open(folder, os.O_PATH)
    bare_node.hook_folder = Path(f"/proc/{os.getpid()}/fd/{mounted}")  # leads to this folder only, as a mount does
    plugin = bare_node.plugin()
    assert plugin.ask("/healthz") == OK
    shutil.rmtree(folder)
    folder.mkdir()
    eventually(lambda: not plugin.running, lambda: f"the plugin ends: {plugin.log}")
    assert f"orion: somebody has removed {bare_node.hook_folder} on the node" in plugin.log
    os.close(mounted)
