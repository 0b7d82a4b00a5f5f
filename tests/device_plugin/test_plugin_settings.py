"""What a plugin is told: its configuration file, at the start and later, and where its metrics are."""

import socket

from tests.device_plugin.conftest import Node, mounts
from tests.device_plugin.plugin_process import eventually


def test_a_change_of_the_configuration_is_taken_in_and_a_bad_one_is_not(bare_node: Node) -> None:
    node = bare_node
    path = node.write_configuration(preload="environment")
    node.options = ["--configuration", str(path), "--node-name", "n1"]
    node.agent.start()
    node.kubelet.start()
    plugin = node.plugin()
    node.until_allocatable(3, hp=1)
    node.kubelet.admit("before", "main", be=1)
    assert "/etc/ld.so.preload" not in mounts(node.kubelet.start_container("before", "main"))
    node.write_configuration(preload="environment", nodes={"n1": {"preload": "file"}, "n2": {}})
    plugin.until_said("configuration: device list strategy envvar, preload file")
    node.write_configuration(preload="nonsense")
    plugin.until_said("what was read last stands")
    node.kubelet.admit("after", "main", be=1)
    assert "/etc/ld.so.preload" in mounts(node.kubelet.start_container("after", "main"))
    assert "/etc/ld.so.preload" not in mounts(node.kubelet.start_container("before", "main"))
    assert plugin.log.count("what was read last stands") == 1
    assert plugin.metrics()['orion_device_plugin_configuration_changes_total{result="refused"}'] == 1


def test_a_bad_configuration_at_the_start_is_a_sentence(bare_node: Node) -> None:
    plugin = bare_node.plugin("--configuration", str(bare_node.write_configuration(slots=7)))
    eventually(lambda: not plugin.running, "it ends")
    assert plugin.process is not None
    assert plugin.process.returncode == 1
    assert "slots" in plugin.log
    assert "Traceback" not in plugin.log


def test_a_port_of_metrics_that_is_taken_is_said_once_and_had_when_it_is_free(bare_node: Node) -> None:
    # In the host's network both plugins of a rolling update want the same one.
    node = bare_node
    node.agent.start()
    node.kubelet.start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plugin = node.plugin("--metrics-address", f"127.0.0.1:{taken.getsockname()[1]}")
        node.until_allocatable(3, hp=1)
        plugin.until_said("it goes on without")
    assert plugin.metrics()["orion_device_plugin_agent_connected"] == 1
    assert plugin.log.count("it goes on without") == 1


def test_an_address_of_metrics_that_is_not_this_nodes_is_a_sentence(bare_node: Node) -> None:
    plugin = bare_node.plugin("--metrics-address", "192.0.2.1:9436")
    eventually(lambda: not plugin.running, "it ends")
    assert plugin.process is not None
    assert plugin.process.returncode == 1
    assert "metrics cannot be served on 192.0.2.1:9436" in plugin.log
    assert "Traceback" not in plugin.log
