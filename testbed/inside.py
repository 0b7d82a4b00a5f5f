"""Lets any process of this machine run programs on a node: as its root, in its PID, mount and network namespaces.

Such a program runs "on the host" from the view of the node's pods: a node agent that is started this way sees their
processes by the IDs that it would see on a real machine. It is still a child of the caller: the caller can wait for it
and signal it, and it ends with the caller's thread that started it.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import namespaces
from testbed.node_settings import CONTAINERD_SOCKET
from testbed.packages import Runtime
from testbed.process import tether

SIMULATED_GPUS = "/dev/shm/orion-sim"
""" New at each start of the node, like the memory of a GPU. Tests fill /run, where no GPU takes space. """


class Inside:
    """The inside of the node whose files are in `folder`; the node must be switched on."""

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        self.folder, self.name, self._runtime = folder, folder.name, runtime
        self._spawned: list[subprocess.Popen[Any]] = []

    @property
    def init(self) -> int:
        """The ID of the node's process 1 in the machine's PID namespace."""
        return int((self.folder / "init").read_text())

    @property
    def environment(self) -> dict[str, str]:
        """The caller's environment, with the node's programs on PATH and its own simulated GPUs."""
        path = self._runtime.environment["PATH"]
        simulated = {"ORION_SIM_SEED": self.name, "ORION_SIM_STATE": SIMULATED_GPUS}
        return os.environ | simulated | {"PATH": path, "NODE_NAME": self.name}

    @contextlib.contextmanager
    def children(self) -> Iterator[None]:
        """Start this thread's next children in the node's PID and network namespaces.

        The thread cannot start threads inside this context.
        """
        with (
            namespaces.network_of(f"/proc/{self.init}/ns/net"),
            namespaces.children_in_pid_namespace_of(self.init),
        ):
            yield

    def spawn(
        self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a program on the node; `environment` is added to the node's, `options` are those of `Popen`."""
        with self.children():
            child = subprocess.Popen(
                tether([str(part) for part in command], self.init),
                env=self.environment | dict(environment or {}),
                **options,
            )
        self.bury()
        self._spawned.append(child)
        return child

    def bury(self) -> None:
        """Reap the spawned children that have ended."""
        self._spawned = [child for child in self._spawned if child.poll() is None]

    def run(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        given: str = "",
        timeout: float = 60,
    ) -> str:
        """Run a program on the node and return what it printed.

        Raises:
            subprocess.CalledProcessError: the program failed; a note holds its error output.
        """
        pipe = subprocess.PIPE
        with self.spawn(command, environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
            try:
                said, complaint = child.communicate(given, timeout)
            except BaseException:
                child.kill()
                raise
        if child.returncode != 0:
            failure = subprocess.CalledProcessError(child.returncode, list(command), said, complaint)
            failure.add_note(complaint)
            raise failure
        return str(said)

    def import_image(self, archive: Path) -> None:
        """Import the images of an OCI archive into the node's containerd."""
        arguments = ["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import", str(archive)]
        self.run([self._runtime.program("ctr"), *arguments])
