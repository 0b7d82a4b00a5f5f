"""A machine for host tests: simulated GPUs, an agent, and real client processes under the hook.

A test never sleeps instead of waiting: it waits, with a deadline, for a client's answer or for a state in the agent's
snapshot.
"""

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from orion.hook import layout
from orion.hook.policy_table import BASELINES
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from tests.hook.scripted_client import DEADLINE, MILLISECOND, Client, busy, eventually
from tests.loaded import Started, start


class Machine:
    """Separate simulated GPUs, an agent's root, and clients. A context manager."""

    start_seconds = DEADLINE
    """ The time that an agent may take to start serving. """

    def __init__(self, build: Path, gpus: int = 1, contexts_take: int = 0) -> None:
        self.build = build
        self.folder = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))
        self.root = self.folder / "root"
        self._clients: list[Client] = []
        self._agents: list[Started] = []
        self._asked: AgentClient | None = None
        self._started = 0
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ORION_")}
        self.environment |= {"ORION_SIM_STATE": str(self.folder / "sim"), "ORION_SIM_GPUS": str(gpus)}
        self.environment |= {"ORION_SIM_CONTEXT_MEMORY": str(contexts_take)} if contexts_take else {}
        self.uuids = [f"GPU-{uuid}" for uuid in self._list_gpus(gpus)]

    def _list_gpus(self, gpus: int) -> list[str]:
        source = (
            "import ctypes, sys; sim = ctypes.CDLL(sys.argv[1]); text = ctypes.create_string_buffer(48)\n"
            "for gpu in range(sim.orion_sim_gpu_count()):\n"
            "    sim.orion_sim_gpu_uuid(gpu, text); print(text.value.decode().removeprefix('GPU-'))"
        )
        command = [sys.executable, "-c", source, str(self.simulated_library)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True)
        uuids = done.stdout.split()
        assert len(uuids) == gpus
        return uuids

    @property
    def simulated_library(self) -> Path:
        return self.build / "sim" / "libcuda.so.1"

    @property
    def hook(self) -> Path:
        return self.build / ("liborion_hook_bench.so" if BASELINES in self.environment else "liborion_hook.so")

    @property
    def program(self) -> Path:
        return self.build / "test" / "client_scripted"

    @property
    def state(self) -> Path:
        """The folder of the simulated machine."""
        return self.folder / "sim"

    def next_number(self) -> int:
        """Return a new number, for a name that must be unique."""
        self._started += 1
        return self._started

    def adopt(self, client: Client) -> None:
        """Make this machine end a client that other code started."""
        self._clients.append(client)

    def know_baselines(self) -> None:
        """Give clients and agents that start from now on the policies of `orion bench`."""
        self.environment[BASELINES] = "1"

    def run_contexts_together(self) -> None:
        """Let the GPUs run several processes' work at the same time, as under MPS. Call this before their first use."""
        self.simulate(ORION_SIM_MODE="mps")

    def simulate(self, **parameters: str) -> None:
        """Give the GPUs other parameters, which the simulated machine reads once. Call this before their first use."""
        shutil.rmtree(self.folder / "sim", ignore_errors=True)
        self.environment |= parameters

    # -- The agent -----------------------------------------------------------------------------------------------------

    @property
    def agent_pid(self) -> int:
        return self._agents[-1].pid

    def start_agent(self, *options: str) -> None:
        """Start an agent on the machine's root and wait until it serves."""
        self.launch_agent(*options)
        self.until_agent_serves()

    def launch_agent(self, *options: str) -> None:
        """Start an agent on the machine's root; do not wait."""
        command = ["--root", str(self.root), "--gpus", "simulated"]
        command += ["--simulated-library", str(self.simulated_library), *options]
        if "--metrics-address" not in options:
            command += ["--metrics-address", ""]
        log = self.folder / f"agent-{len(self._agents)}.log"
        with log.open("wb") as stderr:
            self._agents.append(start("orion.node_agent", command, stderr, self.environment))

    def until_agent_serves(self) -> None:
        agent = self._agents[-1]
        eventually(
            lambda: " agent: serves " in self.agent_log() or agent.poll() is not None,
            "the agent serves",
            self.start_seconds,
        )
        assert agent.poll() is None, self.agent_log()

    def agent_log(self) -> str:
        return (self.folder / f"agent-{len(self._agents) - 1}.log").read_text()

    def kill_agent(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._asked is not None:
            self._asked.close()
            self._asked = None
        self._agents[-1].send_signal(number)
        self._agents[-1].wait(DEADLINE)

    @property
    def agent(self) -> AgentClient:
        """The administrators' API."""
        if self._asked is None:
            self._asked = AgentClient(self.root)
        return self._asked

    def gpu(self, index: int = 0) -> agent_pb2.Gpu:
        """Return a GPU from the agent's present snapshot."""
        return next(gpu for gpu in self.agent.snapshot().gpus if gpu.uuid == self.uuids[index])

    def shown(self, client: Client, gpu: int = 0) -> agent_pb2.Client | None:
        """Return a client from the agent's present snapshot, or None if it is missing."""
        clients = (shown for slot in self.gpu(gpu).slots for shown in slot.clients)
        return next((shown for shown in clients if shown.process_id == client.pid), None)

    def state_of(self, client: Client, gpu: int = 0) -> str:
        shown = self.shown(client, gpu)
        return "" if shown is None else shown.state

    def until(self, client: Client, state: str, gpu: int = 0, seconds: float = DEADLINE) -> None:
        """Wait until the agent shows the client in that state; "": until the client is gone."""
        eventually(lambda: self.state_of(client, gpu) == state, f"{client.pid} is {state or 'gone'}", seconds)

    def until_joined(self, *clients: Client, gpu: int = 0) -> None:
        for client in clients:
            eventually(lambda client=client: self.shown(client, gpu), f"{client.pid} has joined")  # type: ignore[misc]

    def until_known(self, hp: Client, *clients: Client) -> None:
        """Wait until running be clients know an hp client: the agent collects news for 20 ms."""

        def gated(be: Client) -> int:
            shown = self.shown(be)
            return shown.gated_launches if shown else 0

        def waits(be: Client) -> bool:
            before = gated(be)
            with busy(hp, 5) as launched:
                ran = be.must("run 1 10").ended
            return ran >= launched.began + 5 * MILLISECOND and gated(be) > before

        for be in clients:
            eventually(lambda be=be: waits(be), f"{be.pid} waits for {hp.pid}")  # type: ignore[misc]
        self.until(hp, "idle")

    # -- Clients -------------------------------------------------------------------------------------------------------

    def client_root(self, *slots: str) -> Path:
        """Make the folder that a container sees as /run/orion: one slot of each GPU, "" for none."""
        self._started += 1
        root = self.folder / f"c{self._started}"
        (root / "slots").mkdir(parents=True)
        for uuid, slot in zip(self.uuids, slots, strict=False):
            if slot:
                (root / "slots" / uuid).symlink_to(self.root / "gpus" / uuid / slot)
        return root

    def client_environment(self, root: Path | None) -> dict[str, str]:
        """Return the environment of a client; without a root it does not run under the hook."""
        environment = self.environment | {"LD_LIBRARY_PATH": str(self.build / "sim")}
        if root is not None:
            environment |= {"ORION_ROOT": str(root), "LD_PRELOAD": str(self.hook)}
        return environment

    def start_in(self, root: Path | None, *prefix: str, **environment: str) -> Client:
        """Start a client process that sees that root. It has not used a GPU yet."""
        self._started += 1
        complaints = self.folder / f"stderr-{self._started}"
        client = Client([*prefix, str(self.program)], self.client_environment(root) | environment, complaints)
        self._clients.append(client)
        return client

    def start(self, *slots: str) -> Client:
        """Start a client in these slots ("hp-0", "be-3"), one per GPU, and let it use the first GPU.

        It has joined when this method returns, unless no agent serves.
        """
        client = self.start_in(self.client_root(*slots))
        client.must("init 0")
        if self._agents and self._agents[-1].poll() is None and slots[0]:
            self.until_joined(client)
        return client

    # -- The end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self._asked is not None:
            self._asked.close()
        for agent in self._agents:
            if agent.poll() is None:
                agent.kill()
            agent.wait(DEADLINE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def record_word(client: Client, field: str) -> int:
    """Read a word of the record page from the client's own memory."""
    maps = Path(f"/proc/{client.pid}/maps").read_text()
    start = re.search(r"^([0-9a-f]+)-.*memfd:orion-record", maps, re.MULTILINE)
    if start is None:
        return 0
    with open(f"/proc/{client.pid}/mem", "rb") as memory:
        memory.seek(int(start[1], 16) + layout.offset(layout.RecordPage, field))
        return int.from_bytes(memory.read(8), "little")


def percentile(values: list[float], of_hundred: float) -> float:
    """Return the smallest value that at least `of_hundred` percent of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * of_hundred / 100))]


def figure(what: str, values: list[float], unit: str) -> None:
    """Print a measured figure (pytest -s shows it)."""
    text = f"median {statistics.median(values):.3f} {unit}"
    if len(values) > 1:
        text += f", p99 {percentile(values, 99):.3f} {unit}, most {max(values):.3f} {unit}"
    print(f"\nmeasured: {what}: {text}, of {len(values)}")
