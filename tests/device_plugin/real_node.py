"""A node with the real agent, and containers that are processes; only the kubelet is a stand-in.

GPUs are simulated by default. With ORION_TEST_GPUS=real, the tests use the machine's GPUs and driver.
"""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from orion.device_plugin.kubelet import api_pb2
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, NoAgent
from tests.device_plugin.conftest import Node
from tests.device_plugin.plugin_process import DEADLINE, eventually
from tests.hook.containers import require_root
from tests.loaded import Started, start

REAL = os.environ.get("ORION_TEST_GPUS") == "real"

_HERE = Path(__file__).parent
HOOK = "/run/orion/lib/liborion_hook.so"


class Container:
    """A process that stands for a container: it has the mounts and the environment that the container would have.

    Args:
        answer: the environment, mounts and devices that the kubelet returns for the container.
        log: the file for the standard error of the process.
        environment: the variables that the webhook would write into the pod.
    """

    def __init__(self, answer: api_pb2.ContainerAllocateResponse, log: Path, environment: dict[str, str]) -> None:
        require_root()
        mounts = [(mount.host_path, mount.container_path, mount.read_only) for mount in answer.mounts]
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ORION_", "LD_PRELOAD"))}
        if "NVIDIA_VISIBLE_DEVICES" in answer.envs:  # NVIDIA's container runtime would make only these visible
            own["CUDA_VISIBLE_DEVICES"] = answer.envs["NVIDIA_VISIBLE_DEVICES"]
        specification = {"mounts": mounts, "environment": {**own, **dict(answer.envs), **environment}}
        program = ["unshare", "--mount", sys.executable, str(_HERE / "container.py"), json.dumps(specification)]
        program += [sys.executable, str(_HERE / "gpu_client.py")]
        self.log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, bufsize=1
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def do(self, command: str) -> dict[str, Any]:
        """Send a command to the process; return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        assert select.select([self.process.stdout], [], [], DEADLINE)[0], f"{command}: no answer"
        line = self.process.stdout.readline()
        assert line, f"{command}: the process has ended: {self.log.read_text()}"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, f"{answer['error']}: {self.log.read_text()}"
        return answer

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class RealNode(Node):
    """A node with the real agent; tests may change its configuration file."""

    def __init__(self, folder: Path, gpus: int = 1) -> None:
        super().__init__(folder)
        self.configuration = folder / "node.yaml"
        self.environment |= {"ORION_SIM_GPUS": str(gpus), "ORION_SIM_SEED": folder.name, "NODE_NAME": "this-node"}
        self.options += ["--configuration", str(self.configuration)]
        self._agent_process: Started | None = None
        self.containers: list[Container] = []
        self.configure()

    def configure(self, **settings: Any) -> None:
        """Write the configuration file."""
        plain = {"version": "v1", "slots": {"hp": 1, "be": 3}, **settings}
        fresh = self.configuration.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(plain))
        fresh.replace(self.configuration)

    def start_agent(self) -> None:
        command = ["--root", str(self.root), "--metrics-address", ""]
        # With an empty node name, the agent runs outside a cluster. Other tests check the agent in a cluster.
        command += ["--configuration", str(self.configuration), "--node-name", ""]
        command += ["--gpus", "nvml" if REAL else "simulated"]
        with (self.folder / "agent.log").open("ab") as log:
            self._agent_process = start("orion.node_agent", command, log, {**os.environ, **self.environment})
        eventually(self.agent_answers, "the agent serves")

    def agent_answers(self) -> bool:
        assert self._agent_process is not None
        assert self._agent_process.poll() is None, (self.folder / "agent.log").read_text()
        try:
            self.snapshot()
        except NoAgent:
            return False
        return True

    def kill_agent(self) -> None:
        if self._agent_process is not None:
            self._agent_process.kill()
            self._agent_process.wait(DEADLINE)
            self._agent_process = None

    def snapshot(self) -> agent_pb2.Snapshot:
        with AgentClient(self.root, timeout=2.0) as agent:
            return agent.snapshot()

    def slot_of(self, container: Container) -> str:
        """Return the slot that a container's process has joined, according to the agent; empty: it has joined none."""
        for gpu in self.snapshot().gpus:
            for slot in gpu.slots:
                if any(client.process_id == container.pid for client in slot.clients):
                    return f"{gpu.uuid}::{slot.name}"
        return ""

    def until_joined(self, container: Container, slot: str) -> None:
        eventually(lambda: self.slot_of(container) == slot, f"{container.pid} has joined {slot}")

    def start(self, pod: str, container: str = "main", *, preload: str = HOOK, **environment: str) -> Container:
        """Start a container of an admitted pod."""
        answer = self.kubelet.start_container(pod, container)
        if preload:
            environment = {"LD_PRELOAD": preload, **environment}
        started = Container(answer, self.folder / f"{pod}-{container}.log", environment)
        self.containers.append(started)
        return started

    def close(self) -> None:
        for container in self.containers:
            container.end()
        self.kill_agent()
        super().close()
