"""A node of a cluster on this machine: containerd, kubelet and kube-proxy as child processes of this process.

The node has its own PID, mount, host name and network namespaces (node_init.py, place.py). So several nodes can run
side by side, and a node ends as a whole: `power_off` kills its process 1, and the kernel kills the others. An orderly
shutdown of pods, kubelet and containerd was rejected: containerd's shims survive if a step fails, and no data of a run
is needed later.
"""

import contextlib
import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testbed import cgroups, images, namespaces, node_settings
from testbed.access import Access
from testbed.errors import Failed
from testbed.inside import Inside
from testbed.namespaces import Network
from testbed.node_settings import Settings
from testbed.packages import Runtime
from testbed.place import Fabric
from testbed.process import Process, Processes, tether
from testbed.waiting import wait_until

PATIENCE = 20.0  # seconds until the kernel has killed all processes of a node
INIT = Path(__file__).with_name("node_init.py")


class Node(Inside, Processes):
    """One node; `folder` (named after the node; made, and kept) holds its files, logs and what survives its restart.

    Start it from the main thread: its processes end with the thread that started them.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        fabric: Fabric,
        access: Access,
        runtime: Runtime,
        programs: Mapping[str, Path],
        labels: Mapping[str, str] | None = None,
    ) -> None:
        Inside.__init__(self, folder, runtime)
        Processes.__init__(self, folder / "logs")
        self.number, self._fabric, self._access, self._programs = number, fabric, access, programs
        self._settings = Settings(
            name=folder.name,
            address=fabric.node_address(number),
            pods=fabric.pods(number),
            all_pods=fabric.range,
            cgroup=f"{fabric.cgroup}/{folder.name}",
            labels=labels or {},
        )
        self._on_since = datetime.datetime.now(datetime.UTC)
        self._network: Network | None = None
        self._init: subprocess.Popen[str] | None = None
        self._processes_in = 0  # the number of their PID namespace

    @property
    def address(self) -> str:
        """The node's address; pods, nodes, the control plane and this machine can reach it."""
        return self._settings.address

    def power_on(self) -> None:
        """Start the node: containerd with the images that every pod needs, kubelet and kube-proxy.

        Raises:
            Failed: a component did not start.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        self._on_since = datetime.datetime.now(datetime.UTC)
        try:
            self._network = Network()
            self._fabric.plug(self._network, self.number)
            cgroups.make(self._settings.cgroup)
            self._boot()
            self._make_components()
            self.begin("containerd")
            self._wait("containerd did not answer", self._containerd_answers)
            self._bring_images()
            self.begin("kubelet")
            self.begin("kube-proxy")
        except OSError as reason:
            raise Failed(f"node {self.name}: {reason}") from reason

    def power_off(self) -> None:
        """Kill all processes of the node, and remove its network and cgroups; its files stay."""
        init, self._init = self._init, None
        if init:
            self._kill(init)
        for process in self._processes.values():
            process.stop()
        self.bury()
        if init:
            # Process 1 ends once the parents of all other processes have reaped them; some parents are not ours.
            with contextlib.suppress(subprocess.TimeoutExpired):
                init.wait(0.2)
            init.returncode = -signal.SIGKILL
        if self._network:
            self._fabric.unplug(self.number)
            self._network.close()
            self._network = None
        (self.folder / "init").unlink(missing_ok=True)
        cgroups.remove(self._settings.cgroup)

    def reboot(self) -> None:
        """Power off and on again; return when the node is ready."""
        self.power_off()
        self.power_on()
        self.wait_until_ready()

    def end(self, component: str, patience: float = 0) -> None:
        """End a component: SIGTERM and `patience` seconds to react, if more than 0; then SIGKILL. Pods continue."""
        self._processes[component].stop(patience)

    def begin(self, component: str) -> None:
        """Start a component that is not running."""
        with self.children():
            self._processes[component].start()

    def restart(self, component: str, patience: float = 0) -> None:
        """End a component and start it again."""
        self.end(component, patience)
        self.begin(component)

    def runs(self, component: str) -> bool:
        """Return whether a component runs now; one that has crashed does not."""
        return self._processes[component].runs

    def pids(self) -> dict[str, int]:
        """Return the machine's IDs of all processes that should run: the components, and process 1 as `init`."""
        return super().pids() | ({"init": self._init.pid} if self._init else {})

    def ready(self) -> bool:
        """Return whether the API server shows this node as ready."""
        with contextlib.suppress(OSError):
            node = self._access.read(f"/api/v1/nodes/{self.name}") or {}
            conditions = node.get("status", {}).get("conditions", [])
            return any(each["type"] == "Ready" and each["status"] == "True" and self._new(each) for each in conditions)
        return False

    def wait_until_ready(self) -> None:
        """Return when the node is ready.

        Raises:
            Failed: a component ended, or the node was not ready in time.
        """
        self._wait(f"node {self.name} was not ready", self.ready)

    def _new(self, condition: Mapping[str, str]) -> bool:
        """Return whether a condition was reported after the node was last powered on."""
        reported = datetime.datetime.fromisoformat(condition["lastHeartbeatTime"])  # whole seconds
        return reported > self._on_since

    def _boot(self) -> None:
        """Start process 1."""
        assert self._network
        command = tether([sys.executable, str(INIT), self.name, str(self.folder)])
        log = self._logs / "init.log"
        with (
            log.open("ab") as errors,
            self._network.entered(),
            namespaces.children_in_new_pid_namespace(),
        ):
            self._init = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True,
            )  # fmt: skip
        assert self._init.stdout
        with self._init.stdout as output:
            said = output.readline().strip()
        if said != "ready":
            raise Failed(f"node {self.name}: {said or 'process 1 printed nothing'}; see {log}")
        self._processes_in = namespaces.identity_of_pid_namespace(self._init.pid)
        (self.folder / "init").write_text(str(self._init.pid))

    def _kill(self, init: subprocess.Popen[str]) -> None:
        """Kill process 1, and with it all others; return when none runs."""
        init.kill()
        wait_until(
            lambda: not set(namespaces.living_in(self._processes_in)) - {init.pid},
            f"node {self.name}: the kernel has not killed all processes",
            patience=PATIENCE,
        )

    def _make_components(self) -> None:
        lines = node_settings.command_lines(
            self._settings, self.folder / "settings", self._access, self._runtime, self._programs
        )
        environment = os.environ | dict(self._runtime.environment)
        for name, command in lines.items():
            log = self._logs / f"{name}.log"
            self._processes[name] = Process(name, command, log, environment, self.init)

    def _containerd_answers(self) -> bool:
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run([self._runtime.program("ctr"), "--address", node_settings.CONTAINERD_SOCKET, "version"])
            return True
        return False

    def _bring_images(self) -> None:
        for make in (images.pause, images.shell):
            image = make(self._runtime.busybox)
            archive = self.folder / f"{make.__name__}.tar"
            self.import_image(image.write(archive))
            archive.unlink()
