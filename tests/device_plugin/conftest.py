"""A node for each test: a stand-in kubelet, an agent that the test scripts, and the plugin as a process."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.device_plugin.plugin_process import DEADLINE, PluginProcess, eventually
from tests.device_plugin.scripted_agent import ScriptedAgent
from tests.device_plugin.stand_in_kubelet import StandInKubelet

HP, BE = "orion.gpu/hp", "orion.gpu/be"


class Node:
    """The folders of one node, and its processes. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root, self.hook_folder = folder / "root", folder / "hook"
        self.kubelet = StandInKubelet(folder / "kubelet")
        self.agent = ScriptedAgent(self.root)
        self.environment = {"ORION_SIM_STATE": str(folder / "sim")}
        self.options = ["--agent-patience", "1"]
        self.plugins: list[PluginProcess] = []

    def plugin(self, *options: str) -> PluginProcess:
        """Start a plugin."""
        plugin = PluginProcess(
            self.folder, self.kubelet.folder, self.root, self.hook_folder, *self.options, *options,
            name=f"plugin-{len(self.plugins)}", environment=self.environment,
        )  # fmt: skip
        self.plugins.append(plugin)
        return plugin.start()

    def write_configuration(self, **settings: object) -> Path:
        """Write the node's configuration file atomically, as a ConfigMap is updated; return its path."""
        path = self.folder / "node.yaml"
        fresh = path.with_suffix(".new")
        fresh.write_text(yaml.safe_dump({"version": "v1", **settings}))
        fresh.replace(path)
        return path

    def end_plugin(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End the newest plugin, and wait until the kubelet knows; return the plugin's exit status.

        Before that, the kubelet still counts the slots of the plugin that has ended.
        """
        status = self.plugins[-1].end(number)
        self.until_allocatable(0, hp=0)
        return status

    def until_allocatable(self, be: int, hp: int | None = None, seconds: float = DEADLINE) -> None:
        """Wait until the kubelet could allocate this many slots."""
        eventually(lambda: self.kubelet.allocatable(BE) == be, f"{be} of {BE} are allocatable", seconds)
        if hp is not None:
            eventually(lambda: self.kubelet.allocatable(HP) == hp, f"{hp} of {HP} are allocatable", seconds)

    def replace_plugin(self, be: int = 3, hp: int = 1) -> PluginProcess:
        """End the newest plugin, start another, and wait until the kubelet could allocate this many of its slots."""
        self.end_plugin()
        plugin = self.plugin()
        self.until_allocatable(be, hp)
        return plugin

    def until_connected(self) -> None:
        """Wait until the newest plugin is connected to the agent; after that no container waits for the agent."""
        metrics = self.plugins[-1].metrics
        eventually(lambda: metrics()["orion_device_plugin_agent_connected"] == 1, "the plugin is connected")

    def close(self) -> None:
        for plugin in self.plugins:
            plugin.close()
        self.kubelet.stop()
        self.agent.stop()


@pytest.fixture
def bare_node(socket_folder: Path) -> Iterator[Node]:
    """A node on which nothing runs yet."""
    node = Node(socket_folder)
    yield node
    node.close()


@pytest.fixture
def node(bare_node: Node) -> Node:
    """A node with a kubelet, an agent of one GPU with 1 hp and 3 be slots, and a registered plugin."""
    bare_node.agent.start()
    bare_node.kubelet.start()
    bare_node.plugin()
    bare_node.until_allocatable(3, hp=1)
    return bare_node


def mounts(answer: object) -> dict[str, Path]:
    """Return the mounts of an Allocate answer: the node's path by the container's path."""
    return {mount.container_path: Path(mount.host_path) for mount in answer.mounts}  # type: ignore[attr-defined]
