"""A control plane as child processes of this process, with components that can be restarted one by one.

Tests that break things start their own control plane this way. The shared one runs in a separate process
(supervisor.py).
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed import components
from testbed.access import Access
from testbed.place import LOOPBACK, Loopback, Place
from testbed.ports import Held
from testbed.process import Process, Processes, Running


class ControlPlane(Processes, Running):
    """One control plane; `folder` (made, and removed by `stop`) holds its data, keys, logs and kubeconfig.

    Use it as a context manager from the main thread: components end with the thread that started them.
    """

    def __init__(self, folder: Path, programs: Mapping[str, Path], place: Place | None = None) -> None:
        super().__init__(folder / "logs")
        self.folder, self._programs, self.place = folder, programs, place or Loopback()
        self._held: list[Held] = []
        self._access: Access | None = None

    @property
    def access(self) -> Access:
        """Access to the control plane."""
        assert self._access, "not started"
        return self._access

    @property
    def address(self) -> str:
        """The address at which components of a cluster reach the control plane's network."""
        return self.place.address

    def start(self) -> None:
        """Start all components; return when the API server is ready and the controllers work.

        Raises:
            Failed: a component ended, or was not ready in time.
        """
        self._logs.mkdir(parents=True)
        self.folder.chmod(0o700)
        address = self.place.address
        with self.place.entered():
            self._held = [Held(each) for each in (address, LOOPBACK, LOOPBACK)]
        ports = components.Ports(address, *(held.number for held in self._held))
        self._access = components.prepare(self.folder, ports)
        for name, command in components.command_lines(self.folder, ports, self._programs).items():
            self._processes[name] = Process(name, command, self._logs / f"{name}.log")
        self.begin("etcd")
        self.begin("kube-apiserver")
        self.wait_until_ready()
        # These two exit if the API server takes longer than 10 s to answer, so they start after it.
        self.begin("kube-controller-manager")
        self.begin("kube-scheduler")
        self._wait("the controller manager made no service account", self._controllers_work)

    def wait_until_ready(self) -> None:
        """Return when the API server reports that it is ready.

        Raises:
            Failed: a component ended, or the API server was not ready in time.
        """
        self._wait("the API server was not ready", lambda: self._answers("/readyz"))

    def end(self, component: str, patience: float = 0) -> None:
        """End a component: SIGTERM and `patience` seconds to react, if more than 0; then SIGKILL."""
        self._processes[component].stop(patience)

    def begin(self, component: str, options: Sequence[str] = ()) -> None:
        """Start a component that is not running, with more options of this start alone."""
        with self.place.entered():
            self._processes[component].start(options)

    def restart(self, component: str, patience: float = 0, options: Sequence[str] = ()) -> None:
        """End a component and start it again with the same port and data; return when the API server is ready."""
        self.end(component, patience)
        self.begin(component, options)
        self.wait_until_ready()

    def runs(self, component: str) -> bool:
        """Return whether a component runs now; one that has crashed does not."""
        return self._processes[component].runs

    def stop(self, keep_logs: bool = False) -> None:
        """Kill all components, as no data is needed later; remove the folder, or with `keep_logs` all but the logs."""
        for process in reversed(self._processes.values()):
            process.stop()
        for held in self._held:
            held.release()
        for path in [] if not self.folder.exists() else sorted(self.folder.iterdir()):
            if keep_logs and path.name == "logs":
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self.folder.exists() and not keep_logs:
            os.rmdir(self.folder)

    def _answers(self, path: str) -> bool:
        try:
            return self.access.get(path) == 200
        except OSError:
            return False

    def _controllers_work(self) -> bool:
        return self._answers("/api/v1/namespaces/default/serviceaccounts/default")
