"""A node with an agent and a DRA driver as processes, a stand-in for the kubelet and, if needed, for the API server."""

import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, NoAgent
from tests.dra_driver.stand_in_api_server import StandInApiServer
from tests.dra_driver.stand_in_kubelet import StandInKubelet
from tests.loaded import Started, start
from tests.waiting import DEADLINE, eventually


class DriverNode:
    """The folders of one node, and its processes.

    Args:
        folder: the folder of all others.
        kubeconfig: of a real API server; None: that of the stand-in.
        gpus: number of simulated GPUs.
    """

    def __init__(self, folder: Path, kubeconfig: Path | None = None, gpus: int = 2) -> None:
        self.folder, self.root, self.cdi = folder, folder / "root", folder / "cdi"
        self.kubelet = StandInKubelet(folder / "kubelet")
        self.server = StandInApiServer(folder)
        self._kubeconfig = kubeconfig or self.server.kubeconfig
        self.records = folder / "kubelet/plugins/orion.gpu/claims"
        self._environment = {**os.environ, "ORION_SIM_STATE": str(folder / "sim"), "ORION_SIM_GPUS": str(gpus)}
        self._processes: dict[str, Started] = {}
        self.options = ["--agent-patience", "1"]
        self.agent_options: list[str] = []
        self.metrics_address = ""
        self.configure()

    def configure(self, **settings: object) -> None:
        """Write the node's configuration file."""
        fresh = self.folder / "node.new"
        fresh.write_text(json.dumps({"version": "v1", "slots": {"hp": 1, "be": 3}, **settings}))
        fresh.replace(self.folder / "node.yaml")

    def begin(self, name: str, *command: str) -> None:
        """Start a process of the command `orion`."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = start(
                "orion.cli",
                [*command, "--root", str(self.root), "--configuration", str(self.folder / "node.yaml"),
                 "--metrics-address", self.metrics_address],
                log, self._environment,
            )  # fmt: skip

    def begin_agent(self) -> None:
        """Start the agent, and wait until it serves."""
        self.begin("agent", "agent", "--gpus", "simulated", *self.agent_options)
        eventually(self.agent_answers, "the agent answers")

    def agent_answers(self) -> bool:
        try:
            self.slots()
        except NoAgent:
            return False
        return True

    def begin_driver(self, name: str = "driver") -> None:
        """Start a driver, and wait until the kubelet has found it."""
        before = self.kubelet.look()
        self.begin_unfound_driver(name)
        eventually(lambda: self.kubelet.look() not in ("", before), f"the kubelet finds the driver: {self.log(name)}")

    def begin_unfound_driver(self, name: str = "driver") -> None:
        """Start a driver."""
        self.begin(
            name, "dra-driver", "--kubelet-folder", str(self.kubelet.folder), "--cdi-folder", str(self.cdi),
            "--hook-folder", str(self.folder / "hook"), "--kubeconfig", str(self._kubeconfig),
            "--node-name", "node-1", *self.options,
        )  # fmt: skip

    def end(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a process."""
        process = self._processes.pop(name)
        process.send_signal(number)
        process.wait(DEADLINE)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a process a signal that does not end it, such as SIGSTOP."""
        self._processes[name].send_signal(number)

    def limit_files(self, name: str, bytes_: int = resource.RLIM_INFINITY) -> None:
        """Let a process write no file, its log included, beyond a size; it gets an error as from a full disk."""
        resource.prlimit(self._processes[name].pid, resource.RLIMIT_FSIZE, (bytes_, resource.RLIM_INFINITY))

    def change_machine(self, **variables: str) -> None:
        """Replace the simulated machine by one with other GPUs, as another boot may find; an agent starts after it."""
        self.end("agent")
        shutil.rmtree(self.folder / "sim")
        self._environment |= variables
        self.begin_agent()

    def fault(self, what: str, gpu: str, *arguments: str) -> None:
        """Make a simulated GPU fail: `fault("lose", gpu)`, `fault("xid", gpu, "79")`."""
        command = [sys.executable, "-m", "orion.hook.simulated", what, gpu, *arguments]
        subprocess.run(command, env=self._environment, check=True, timeout=DEADLINE)

    def ask(self, name: str, path: str) -> tuple[int, str]:
        """Return the status and the text of a process's answer to an HTTP GET."""
        ports = eventually(lambda: re.findall(r"metrics: on http://\S+:(\d+)/metrics", self.log(name)))
        connection = http.client.HTTPConnection("127.0.0.1", int(ports[-1]), timeout=DEADLINE)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def slots(self) -> dict[str, str]:
        """Return the claims that hold slots, as the agent says: GPU::slot by claim's uid and share."""
        return {f"{slot.claim.uid} {slot.claim.share}": f"{slot.gpu}::{slot.name}" for slot in self.claimed()}

    def claimed(self) -> list[agent_pb2.Slot]:
        """Return the slots that claims hold, as the agent says."""
        with AgentClient(self.root) as agent:
            return [slot for gpu in agent.snapshot().gpus for slot in gpu.slots if slot.HasField("claim")]

    def pods(self, uid: str) -> list[tuple[str, str]]:
        """Return names and uids of the pods of a claim with one slot, as the agent says and as the record says."""
        (known,) = (
            [(pod.name, pod.uid) for pod in slot.claim.pods] for slot in self.claimed() if slot.claim.uid == uid
        )
        recorded = json.loads((self.records / f"{uid}.json").read_text())["pods"]
        assert known == [(pod["name"], pod["uid"]) for pod in recorded]
        return known

    def gpus(self) -> list[str]:
        with AgentClient(self.root) as agent:
            return [gpu.uuid for gpu in agent.snapshot().gpus]

    def cdi_files(self) -> dict[str, dict[str, Any]]:
        """Return the edits of each CDI device of the claims, by its qualified name."""
        found = {}
        for path in self.cdi.glob("*.json"):
            specification = json.loads(path.read_text())
            for device in specification["devices"]:
                found[f"{specification['kind']}={device['name']}"] = device["containerEdits"]
        return found

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(DEADLINE)
        self.server.stop()
