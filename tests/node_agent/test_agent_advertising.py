"""What a device plugin receives: the whole list at once and at each change of the configuration or the slots."""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.hook import layout
from orion.node_agent.advertising.advertising import SteppedRatio
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, NoAgent
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.protocol_client import ProtocolClient

SECONDS = 30.0
OTHER = GPU[:-1] + "1"


class Watcher:
    """The lists that one device plugin has received."""

    def __init__(self, root: Path) -> None:
        self.received: queue.SimpleQueue[agent_pb2.Devices] = queue.SimpleQueue()
        self.times: list[float] = []
        self.last = agent_pb2.Devices()
        self._client = AgentClient(root)
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def until(self, condition: Callable[[agent_pb2.Devices], object]) -> agent_pb2.Devices:
        """Return the first list, from the last received one on, for which the condition holds."""
        while not condition(self.last):
            self.last = self.received.get(timeout=SECONDS)
        return self.last

    def _receive(self) -> None:
        with contextlib.suppress(NoAgent):
            for devices in self._client.watch_devices():
                self.times.append(time.monotonic())
                self.received.put(devices)

    def close(self) -> None:
        self._client.close()
        self._thread.join(10)


@pytest.fixture
def watch() -> Iterator[Callable[[AgentProcess], Watcher]]:
    with contextlib.ExitStack() as stack:
        yield lambda agent: stack.enter_context(contextlib.closing(Watcher(agent.root)))


def slots(hp: int, be: int) -> list[str]:
    return [f"hp-{number}" for number in range(hp)] + [f"be-{number}" for number in range(be)]


def advertises(devices: agent_pb2.Devices, *names: str, gpu: str = GPU) -> bool:
    return {each.uuid: list(each.slots) for each in devices.devices}.get(gpu, []) == list(names)


def replace(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.rename(path)


def test_an_agent_outside_a_cluster_advertises_all_slots(
    agent: AgentProcess, watch: Callable[[AgentProcess], Watcher]
) -> None:
    (device,) = watch(agent).until(lambda devices: devices.devices).devices
    assert (device.uuid, device.index, device.model, device.simulated) == (GPU, 0, "A name", True)
    assert (device.memory_bytes, device.memory_reserved_bytes, device.hp_busy_ratio) == (8 << 30, 0, 0)
    assert (list(device.slots), list(device.held), device.healthy, device.cordoned) == (slots(1, 8), [], True, False)
    assert (device.reason, device.HasField("numa_node"), list(device.linked)) == ("", False, [])


def test_every_watcher_gets_every_change_but_not_too_often(
    agent: AgentProcess, watch: Callable[[AgentProcess], Watcher]
) -> None:
    begin = time.monotonic()
    watchers = [watch(agent), watch(agent)]
    for _ in range(20):
        with ProtocolClient(agent.slot("be-1")).join():
            pass
    with ProtocolClient(agent.slot("be-2")).join():
        for watcher in watchers:
            watcher.until(lambda devices: devices.devices and list(devices.devices[0].held) == ["be-2"])
        with AgentClient(agent.root) as administrator:
            administrator.open_slot(GPU, agent_pb2.BE)  # a slot that is made for a process is not advertised
    for watcher in watchers:
        watcher.until(lambda devices: not devices.devices[0].held and advertises(devices, *slots(1, 8)))
        assert len(watcher.times) <= 2 + 5 * (time.monotonic() - begin)
    watch(agent).until(lambda devices: devices == watchers[0].last)


def test_slots_follow_the_configuration(
    stopped_agent: AgentProcess, tmp_path: Path, watch: Callable[[AgentProcess], Watcher]
) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(
        "{version: v1, slots: {hp: 2, be: 2}, nodes: [{matchLabels: {pool: other}, slots: {hp: 0, be: 3}}]}"
    )
    stopped_agent.start("--configuration", str(file))
    plugin = watch(stopped_agent)
    plugin.until(lambda devices: advertises(devices, *slots(2, 2)))
    replace(file, f"{{version: v1, slotsByGPU: [{{gpu: {GPU}, be: 3}}]}}")
    plugin.until(lambda devices: advertises(devices, *slots(1, 3)))
    eventually(lambda: not stopped_agent.slot("hp-1").exists(), "the slot hp-1 is closed", SECONDS)
    with ProtocolClient(stopped_agent.slot("be-2")).join():
        replace(file, "{version: v1, slots: {be: 1}}")
        plugin.until(lambda devices: advertises(devices, "hp-0", "be-0", "be-2"))  # a client uses be-2
    plugin.until(lambda devices: advertises(devices, "hp-0", "be-0"))
    replace(file, "{version: v1, slots: {be: 2}, nonsense: 1}")
    replace(file, "{version: v1, slots: {be: 3}}")
    plugin.until(lambda devices: advertises(devices, *slots(1, 3)))


def test_a_mounted_config_map_is_followed(
    stopped_agent: AgentProcess, tmp_path: Path, watch: Callable[[AgentProcess], Watcher]
) -> None:
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "nodes.yaml").write_text(f"{{version: v1, slots: {{be: {number}}}}}")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "nodes.yaml").symlink_to("..data/nodes.yaml")
    stopped_agent.start("--configuration", str(tmp_path / "nodes.yaml"))
    plugin = watch(stopped_agent)
    plugin.until(lambda devices: advertises(devices, *slots(1, 1)))
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    plugin.until(lambda devices: advertises(devices, *slots(1, 2)))


def test_gpus_that_are_not_ours_are_not_advertised(
    stopped_agent: AgentProcess,
    tmp_path: Path,
    watch: Callable[[AgentProcess], Watcher],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ORION_SIM_GPUS", "2")
    file = tmp_path / "nodes.yaml"
    file.write_text(f"{{version: v1, gpus: [{OTHER}], slots: {{be: 1}}}}")
    stopped_agent.start("--configuration", str(file))
    plugin = watch(stopped_agent)
    devices = plugin.until(lambda devices: advertises(devices, "hp-0", "be-0", gpu=OTHER))
    assert [(each.uuid, each.reason) for each in devices.not_advertised] == [(GPU, "NotIncluded")]
    with ProtocolClient(stopped_agent.slot("be-0", OTHER)).join():
        replace(file, '{version: v1, gpus: ["0"], slots: {be: 1}}')
        devices = plugin.until(lambda devices: advertises(devices, "hp-0", "be-0"))
        devices = plugin.until(lambda devices: advertises(devices, "be-0", gpu=OTHER))
        (left,) = [each for each in devices.devices if each.uuid == OTHER]
        assert (left.healthy, left.cordoned, left.reason) == (True, True, "NotIncluded")
    devices = plugin.until(lambda devices: len(devices.devices) == 1)
    assert [(each.uuid, each.reason) for each in devices.not_advertised] == [(OTHER, "NotIncluded")]


def test_with_an_unreadable_configuration_an_agent_keeps_its_slots(
    stopped_agent: AgentProcess, tmp_path: Path, watch: Callable[[AgentProcess], Watcher]
) -> None:
    file = tmp_path / "nodes.yaml"
    stopped_agent.start("--configuration", str(file))
    plugin = watch(stopped_agent)
    (why,) = plugin.until(lambda devices: devices.not_advertised).not_advertised
    assert (why.uuid, why.reason) == (GPU, "ConfigurationUnreadable")
    assert "nodes.yaml" in why.message
    replace(file, "{version: v1, slots: {be: 3}}")
    plugin.until(lambda devices: advertises(devices, *slots(1, 3)))
    stopped_agent.kill()
    file.unlink()
    stopped_agent.start("--configuration", str(file))
    watch(stopped_agent).until(lambda devices: advertises(devices, *slots(1, 3)))


def test_a_slot_that_cannot_be_opened_is_tried_again(
    stopped_agent: AgentProcess, tmp_path: Path, watch: Callable[[AgentProcess], Watcher]
) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("{version: v1, slots: {be: 1}}")
    stopped_agent.start("--configuration", str(file))
    plugin = watch(stopped_agent)
    plugin.until(lambda devices: advertises(devices, *slots(1, 1)))
    obstacle = stopped_agent.slot("be-1")
    obstacle.write_text("a file at the path of the slot's directory")
    replace(file, "{version: v1, slots: {be: 3}}")
    plugin.until(lambda devices: advertises(devices, "hp-0", "be-0", "be-2"))
    os.unlink(obstacle)
    plugin.until(lambda devices: advertises(devices, *slots(1, 3)))


def test_the_busy_ratio_is_smoothed_and_reported_in_steps() -> None:
    ratio = SteppedRatio(0.0)
    reported = [ratio.take(1.0, second) for second in range(300)]
    assert reported[0] == 0
    assert 0.55 <= reported[60] <= 0.7
    assert reported[-1] == 1
    assert len(set(reported)) <= 21
    assert sorted(reported) == reported
    noisy = [ratio.take(0.5 + 0.05 * (second % 2), 1_000.0 + second) for second in range(600)]
    assert len(set(noisy[-300:])) == 1  # a value between two steps is not reported again and again


def test_the_ratio_reaches_the_plugin(agent: AgentProcess, watch: Callable[[AgentProcess], Watcher]) -> None:
    with ProtocolClient(agent.slot("hp-0")).join() as hp:
        hp.record.set(layout.RecordPage, "busy_since_ns", time.monotonic_ns())
        with AgentClient(agent.root) as administrator:
            eventually(lambda: administrator.snapshot().gpus[0].hp_busy_ratio > 0.9, "busy for a second")
        plugin = watch(agent)
        devices = plugin.until(lambda devices: devices.devices)
        assert devices.devices[0].hp_busy_ratio >= 0.9  # the first value is the current one, not smoothed
    plugin.until(lambda devices: devices.devices[0].hp_busy_ratio == 0)  # without hp, the ratio is 0 at once
