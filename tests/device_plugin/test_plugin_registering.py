"""After any fault of the kubelet, of the sockets or of a plugin, the plugin registers with the kubelet again."""

import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.device_plugin.conftest import BE, HP, Node
from tests.device_plugin.plugin_process import eventually
from tests.device_plugin.scripted_agent import GPUS, devices
from tests.hook.containers import require_root


def sockets(node: Node) -> list[str]:
    return sorted(path.name for path in node.kubelet.folder.glob("orion-*.sock"))


def registrations(node: Node) -> int:
    return len(node.kubelet.registrations)


def test_both_resources_are_registered_and_listed(node: Node) -> None:
    assert sorted(node.kubelet.registrations) == [BE, HP]
    assert sorted(device.partition("::")[2] for device in node.kubelet.devices(BE)) == ["be-0", "be-1", "be-2"]
    assert [*node.kubelet.devices(HP)] == [f"{GPUS[0]}::hp-0"]


def test_sockets_are_for_root_alone(node: Node) -> None:
    for name in sockets(node):
        assert stat.S_IMODE((node.kubelet.folder / name).stat().st_mode) == 0o600


def test_nothing_is_registered_before_the_first_snapshot(bare_node: Node) -> None:
    # An empty list would mean that there are no GPUs, and in a rolling update would replace the other plugin's list.
    bare_node.kubelet.start()
    plugin = bare_node.plugin()
    plugin.until_logged("metrics: on http")
    assert not bare_node.kubelet.registrations
    bare_node.agent.start()
    bare_node.until_allocatable(3, hp=1)


@pytest.mark.quiet
def test_the_plugin_registers_soon_after_the_kubelets_socket_appears(bare_node: Node) -> None:
    bare_node.agent.start()
    plugin = bare_node.plugin()
    plugin.until_logged("waits for the kubelet")
    plugin.until_logged("agent: connected")
    bare_node.kubelet.start()
    began = time.monotonic()
    bare_node.until_allocatable(3, hp=1)
    assert time.monotonic() - began < 1.0 * 5  # the target is one second; test machines are shared


def test_the_plugin_registers_again_when_the_kubelet_restarts(node: Node) -> None:
    for _ in range(3):
        node.kubelet.restart()
        node.until_allocatable(3, hp=1)
    eventually(lambda: len(sockets(node)) == 2, "each resource has one socket")


def test_the_plugin_registers_again_after_a_killed_kubelet_left_its_socket(node: Node) -> None:
    node.kubelet.stop(leave_socket=True)
    eventually(lambda: "does not register it" in node.plugins[0].log, "registering fails")
    node.kubelet.start()
    node.until_allocatable(3, hp=1)


def test_the_socket_is_replaced_under_a_living_kubelet(node: Node) -> None:
    # Another process serves now; the old process has not ended its streams.
    old = node.kubelet
    node.kubelet = type(old)(old.folder)
    node.kubelet.start()
    node.until_allocatable(3, hp=1)
    old.abandon()


def test_all_sockets_but_the_kubelets_are_wiped(node: Node) -> None:
    before = sockets(node)
    for name in before:
        (node.kubelet.folder / name).unlink()
    eventually(lambda: len(sockets(node)) == 2 and not set(sockets(node)) & set(before), "it serves on new sockets")
    node.until_allocatable(3, hp=1)


def test_the_plugin_registers_again_after_the_kubelets_socket_was_deleted(node: Node) -> None:
    (node.kubelet.folder / "kubelet.sock").unlink()
    node.plugins[0].until_logged("the kubelet's socket is gone")
    node.kubelet.restart()
    node.until_allocatable(3, hp=1)


def test_the_plugin_registers_again_when_a_stream_ends(node: Node) -> None:
    for count in range(1, 4):
        eventually(lambda: node.kubelet.break_stream(BE), "the kubelet has opened its stream")
        eventually(lambda count=count: node.kubelet.registrations.count(BE) > count, "be is registered again")  # type: ignore[misc]
        node.until_allocatable(3, hp=1)
    assert f"{HP}: registers again: the kubelet has ended its stream" not in node.plugins[0].log


def test_a_refused_registration_is_repeated_and_the_reason_logged(bare_node: Node) -> None:
    bare_node.agent.start()
    bare_node.kubelet.refuses = "the ResourceName is taken"
    bare_node.kubelet.start()
    plugin = bare_node.plugin()
    plugin.until_logged(f"{BE}: the kubelet does not register it: the ResourceName is taken")
    bare_node.kubelet.refuses = ""
    bare_node.until_allocatable(3, hp=1)
    assert plugin.metrics()[f'orion_device_plugin_registrations_total{{resource="{BE}",result="refused"}}'] >= 1


def test_a_kubelet_of_another_version_ends_the_plugin_with_a_sentence(bare_node: Node) -> None:
    bare_node.agent.start()
    bare_node.kubelet.refuses = 'requested API version "v1beta1" is not supported by kubelet. Supported version is "v2"'
    bare_node.kubelet.start()
    plugin = bare_node.plugin()
    eventually(lambda: not plugin.running, "the plugin ends")
    assert plugin.process is not None
    assert plugin.process.returncode == 1
    assert "the kubelet refuses v1beta1" in plugin.log
    assert "Traceback" not in plugin.log


def test_the_plugin_registers_again_with_a_kubelet_that_does_not_watch_it(bare_node: Node) -> None:
    bare_node.agent.start()
    bare_node.kubelet.deaf = True
    bare_node.kubelet.start()
    plugin = bare_node.plugin()
    plugin.until_logged("the kubelet does not watch it")
    bare_node.kubelet.deaf = False
    bare_node.until_allocatable(3, hp=1)


@pytest.mark.quiet
def test_rolling_update_with_the_old_plugin_ending_last(node: Node) -> None:
    # Kubelets up to 1.34 disconnect the new plugin when the old one's stream ends.
    node.plugin().until_logged("orion.gpu/be: registered")
    eventually(lambda: registrations(node) >= 4, "the new one is registered")
    node.until_allocatable(3, hp=1)
    assert node.plugins[0].end() == 0
    began = time.monotonic()
    eventually(lambda: registrations(node) >= 6, "the new one has registered again")
    node.until_allocatable(3, hp=1)
    assert time.monotonic() - began < 2.0 * 5
    # While the plugin registers once more, both its old and its new socket exist.
    eventually(lambda: len(sockets(node)) == 2, "each resource has one socket")


def test_rolling_update_in_which_the_old_plugin_registered_last(node: Node) -> None:
    # When the old plugin ends, the kubelet has no plugin, although the new plugin's stream continues.
    kubelet, old = node.kubelet, node.kubelet.plugins()
    token = old[BE]
    node.plugin()
    eventually(lambda: not set(kubelet.plugins().values()) & {token}, "the new one is registered")
    new = kubelet.plugins()
    kubelet.refuses = "not yet"
    kubelet.refuses_endpoints = tuple(f"orion-{role}-{token}" for role in ("hp", "be"))
    kubelet.restart()
    eventually(lambda: kubelet.plugins() == new, "the new one has registered with the new kubelet")
    kubelet.refuses = ""
    eventually(lambda: kubelet.plugins() == old, "the old one has registered after it")
    node.until_allocatable(3, hp=1)
    assert node.plugins[0].end() == 0
    eventually(lambda: kubelet.plugins() == new, "the new one has registered again")
    node.until_allocatable(3, hp=1)


def test_a_plugin_that_was_killed_leaves_nothing(node: Node) -> None:
    left = sockets(node)
    node.end_plugin(signal.SIGKILL)
    node.plugin()
    node.until_allocatable(3, hp=1)
    eventually(lambda: not set(left) & set(sockets(node)), "its sockets are removed")


@pytest.fixture
def latest_file_of_a_dead_plugin(bare_node: Node) -> Iterator[None]:
    """The file that names the latest plugin. It names a killed plugin and cannot be replaced, as on a full disk."""
    require_root()
    note = bare_node.kubelet.folder / "orion-be.latest"
    note.write_text("0123abcd")
    subprocess.run(["mount", "--bind", note, note], check=True)
    yield
    subprocess.run(["umount", "--lazy", note], check=True)


def test_a_latest_file_that_cannot_be_replaced_does_not_prevent_registration(
    bare_node: Node, latest_file_of_a_dead_plugin: None
) -> None:
    node = bare_node
    node.agent.start()
    node.kubelet.start()
    plugin = node.plugin()
    node.until_allocatable(3, hp=1)
    node.kubelet.break_stream(BE)
    plugin.until_logged("orion.gpu/be: registers again")
    node.until_allocatable(3, hp=1)
    assert "another plugin is gone" not in plugin.log
    eventually(lambda: not [*node.kubelet.folder.glob(".orion-*")], "no temporary file is left")


def test_sigterm_ends_streams_and_sockets(node: Node) -> None:
    assert node.end_plugin() == 0
    assert sockets(node) == []
    assert "Traceback" not in node.plugins[0].log


def test_sockets_of_others_in_the_folder_are_left_alone(node: Node) -> None:
    foreign = node.kubelet.folder / "orion-be-of-somebody.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(foreign))
        eventually(lambda: node.kubelet.break_stream(BE), "the kubelet has opened its stream")
        eventually(lambda: node.kubelet.registrations.count(BE) >= 2, "be is registered again")
        node.until_allocatable(3)
        assert foreign.exists()


def test_the_list_follows_the_agents_snapshot(node: Node) -> None:
    node.agent.send(devices(2, be=4))
    node.until_allocatable(8, hp=2)
    node.agent.send(devices(2, be=4, healthy=False, reason="Xid", message="Xid 79"))
    node.until_allocatable(0, hp=0)
    assert node.kubelet.capacity(BE) == 8
    node.agent.send(devices(2, be=4, numa_node=1))
    node.until_allocatable(8, hp=2)
    assert {device.topology.nodes[0].ID for device in node.kubelet.devices(BE).values()} == {1}
    node.agent.send(devices(1, be=1))
    node.until_allocatable(1, hp=1)
    assert node.kubelet.capacity(BE) == 1


def test_a_cordoned_gpu_keeps_the_slots_that_are_held(node: Node) -> None:
    # A container that restarts needs a healthy slot.
    node.agent.send(devices(1, cordoned=True, held=["be-1"]))
    node.until_allocatable(1, hp=0)
    healthy = [name for name, device in node.kubelet.devices(BE).items() if device.health == "Healthy"]
    assert healthy == [f"{GPUS[0]}::be-1"]


def test_a_closed_slot_takes_no_pod_although_a_container_holds_it(node: Node) -> None:
    node.agent.send(devices(1, hp=2, be=4, held=["hp-0", "hp-1"], closed=["hp-0"]))
    expected = {f"{GPUS[0]}::hp-0": "Unhealthy", f"{GPUS[0]}::hp-1": "Healthy"}
    # The plugin reports hp and be slots on two streams, and before this, too, one hp slot was allocatable.
    eventually(
        lambda: {name: device.health for name, device in node.kubelet.devices(HP).items()} == expected,
        "the closed slot is unhealthy and the other one healthy",
    )
    assert node.kubelet.allocatable(HP) == 1


def test_a_dead_agents_last_snapshot_is_used_by_the_next_plugin_too(node: Node) -> None:
    node.agent.send(devices(2, be=4))
    node.until_allocatable(8, hp=2)
    node.agent.stop()
    node.plugins[0].until_logged("agent: disconnected")
    assert node.kubelet.allocatable(BE) == 8
    plugin = node.replace_plugin(be=8, hp=2)
    assert plugin.metrics()["orion_device_plugin_agent_connected"] == 0
    node.agent.snapshot = devices(1)
    node.agent.start()
    node.until_allocatable(3, hp=1)
    assert plugin.metrics()["orion_device_plugin_agent_connected"] == 1


def test_a_corrupt_last_snapshot_is_refused_and_reported(bare_node: Node) -> None:
    bare_node.root.mkdir()
    (bare_node.root / "device-plugin.json").write_text('{"devices": [{"uuid": 7}')
    bare_node.kubelet.start()
    plugin = bare_node.plugin()
    plugin.until_logged("does not hold the agent's last snapshot")
    assert not bare_node.kubelet.registrations
    bare_node.agent.start()
    bare_node.until_allocatable(3, hp=1)
