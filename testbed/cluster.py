"""A cluster as child processes of this process: a control plane and, optionally, nodes on which pods run.

Without nodes it is a control plane on loopback and needs no root. With nodes it needs root and has its own network.
"""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed import packages
from testbed.access import Access
from testbed.control_plane import ControlPlane
from testbed.errors import Failed
from testbed.node import Node
from testbed.place import MOST_NODES, Fabric
from testbed.process import Running

NODE_LABELS = {"orion/enabled": "true"}


class Cluster(Running):
    """One cluster; `folder` (made here, removed by `stop`) holds all its files, those of nodes under nodes/.

    Use it as a context manager from the main thread: its processes end with the thread that started them.
    """

    def __init__(self, folder: Path, programs: Mapping[str, Path], nodes: Sequence[str] = ()) -> None:
        self.folder, self.programs, self._names = folder, programs, list(nodes)
        self._fabric: Fabric | None = None
        self.control_plane = ControlPlane(folder, programs)
        self.nodes: dict[str, Node] = {}

    @property
    def access(self) -> Access:
        """Access to the control plane."""
        return self.control_plane.access

    def start(self) -> None:
        """Start everything; return when the API server and every node are ready.

        Raises:
            Failed: a component ended, or was not ready in time.
            Missing: no node can run on this machine.
        """
        if self._names:
            packages.find()
            self._fabric = Fabric(self.folder)
            self.control_plane = ControlPlane(self.folder, self.programs, self._fabric)
        self.control_plane.start()
        for name in self._names:
            self.add_node(name, wait=False)
        for node in self.nodes.values():
            node.wait_until_ready()

    def add_node(self, name: str, labels: Mapping[str, str] | None = None, wait: bool = True) -> Node:
        """Add a node to a cluster that was started with nodes; return it when it is ready.

        Raises:
            Failed: a component ended, or was not ready in time.
        """
        assert self._fabric, "a cluster without nodes has no network for them"
        free = set(range(1, MOST_NODES + 1)) - {node.number for node in self.nodes.values()}
        if not free:
            raise Failed(f"a cluster has at most {MOST_NODES} nodes")
        node = Node(
            self.folder / "nodes" / name,
            number=min(free),
            fabric=self._fabric,
            access=self.access,
            runtime=packages.find(),
            programs=self.programs,
            labels={**NODE_LABELS, **(labels or {})},
        )
        self.nodes[name] = node
        try:
            node.power_on()
            if wait:
                node.wait_until_ready()
        except BaseException:
            node.power_off()
            raise
        return node

    def remove_node(self, name: str) -> None:
        """Cut a node's power and remove its files. Its Node object stays, so that tests can watch or delete it."""
        node = self.nodes.pop(name)
        node.power_off()
        shutil.rmtree(node.folder)

    def pids(self) -> dict[str, int]:
        """Return the IDs of all processes that should run; those of nodes are named node/component."""
        found = self.control_plane.pids()
        for name, node in self.nodes.items():
            found |= {f"{name}/{component}": pid for component, pid in node.pids().items()}
        return found

    def fault(self) -> str:
        """Return how the first component that ended unexpectedly did so, or an empty text."""
        faults = (node.fault() for node in self.nodes.values())
        return self.control_plane.fault() or next((fault for fault in faults if fault), "")

    def stop(self, keep_logs: bool = False) -> None:
        """End everything, and remove the folder; with `keep_logs`, keep the logs of control plane and nodes."""
        with contextlib.ExitStack() as ending:  # every callback runs, even if one fails
            if self._fabric:
                ending.callback(self._fabric.close)
            ending.callback(self.control_plane.stop, keep_logs)
            ending.callback(self._keep_logs if keep_logs else lambda: None)
            for node in self.nodes.values():
                ending.callback(node.power_off)
        self._fabric = None

    def _keep_logs(self) -> None:
        """Copy the nodes' logs to those of the control plane, which are kept."""
        for name, node in self.nodes.items():
            for log in (node.folder / "logs").glob("*.log"):
                shutil.copy(log, self.folder / "logs" / f"{name}-{log.name}")
