"""The plugin's configuration file at the start and after changes, and the address of its metrics."""

import socket

from orion.crds.configuration_file import LABELS_FILE, write_labels
from tests.device_plugin.conftest import Node, mounts
from tests.device_plugin.plugin_process import eventually


def test_a_changed_configuration_is_used_and_an_invalid_one_is_not(bare_node: Node) -> None:
    node = bare_node
    path = node.write_configuration(preload="environment")
    node.options = ["--configuration", str(path), "--node-name", "n1"]
    node.agent.start()
    node.kubelet.start()
    plugin = node.plugin()
    node.until_allocatable(3, hp=1)
    node.kubelet.admit("before", "main", be=1)
    assert "/etc/ld.so.preload" not in mounts(node.kubelet.start_container("before", "main"))
    write_labels(node.root / LABELS_FILE, {"pool": "a"})
    node.write_configuration(preload="environment", nodes=[{"matchLabels": {"pool": "a"}, "preload": "file"}])
    plugin.until_logged("configuration: device list strategy envvar, preload file")
    node.write_configuration(preload="nonsense")
    plugin.until_logged("the last valid settings stay in force")
    node.kubelet.admit("after", "main", be=1)
    assert "/etc/ld.so.preload" in mounts(node.kubelet.start_container("after", "main"))
    assert "/etc/ld.so.preload" not in mounts(node.kubelet.start_container("before", "main"))
    assert plugin.log.count("the last valid settings stay in force") == 1
    assert plugin.metrics()['orion_device_plugin_configuration_changes_total{result="refused"}'] == 1


def test_a_plugin_waits_for_the_labels_of_its_node(bare_node: Node) -> None:
    node = bare_node
    path = node.write_configuration(nodes=[{"matchLabels": {"pool": "a"}, "preload": "file"}])
    node.options = ["--configuration", str(path), "--node-name", "n1"]
    plugin = node.plugin()
    node.agent.start()
    node.kubelet.start()
    node.until_allocatable(3, hp=1)
    write_labels(node.root / LABELS_FILE, {"pool": "a"})
    plugin.until_logged("configuration: device list strategy envvar, preload file")
    node.kubelet.admit("pod", "main", be=1)
    assert "/etc/ld.so.preload" in mounts(node.kubelet.start_container("pod", "main"))


def test_an_invalid_configuration_at_the_start_ends_the_plugin_with_a_sentence(bare_node: Node) -> None:
    plugin = bare_node.plugin("--configuration", str(bare_node.write_configuration(slots=7)))
    eventually(lambda: not plugin.running, "it ends")
    assert plugin.process is not None
    assert plugin.process.returncode == 1
    assert "slots" in plugin.log
    assert "Traceback" not in plugin.log


def test_a_metrics_port_in_use_is_logged_once_and_used_once_it_is_free(bare_node: Node) -> None:
    # On the host's network, both plugins of a rolling update need the same port.
    node = bare_node
    node.agent.start()
    node.kubelet.start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plugin = node.plugin("--metrics-address", f"127.0.0.1:{taken.getsockname()[1]}")
        node.until_allocatable(3, hp=1)
        plugin.until_logged("goes on without metrics")
    assert plugin.metrics()["orion_device_plugin_agent_connected"] == 1
    assert plugin.log.count("goes on without metrics") == 1


def test_a_metrics_address_of_another_machine_ends_the_plugin_with_a_sentence(bare_node: Node) -> None:
    plugin = bare_node.plugin("--metrics-address", "192.0.2.1:9436")
    eventually(lambda: not plugin.running, "it ends")
    assert plugin.process is not None
    assert plugin.process.returncode == 1
    assert "metrics cannot be served on 192.0.2.1:9436" in plugin.log
    assert "Traceback" not in plugin.log
