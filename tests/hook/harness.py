"""A machine for host tests: simulated GPUs, an agent, and client processes under the hook, each a real process.

Clients do what a test tells them (hook/test/client_scripted.c has the commands) and stamp it with CLOCK_MONOTONIC,
which is `time.monotonic_ns` here, so a test compares times of several processes. Nothing sleeps and hopes: a test
waits for an answer or for what the agent's snapshot says, with a deadline.
"""

import contextlib
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient

MILLISECOND = 1_000_000
DEADLINE = 20.0
""" Seconds after which an answer is not expected any more; far beyond what any takes, so that a hang is a failure. """


def eventually(condition: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    """Wait for a condition; fail with `what` when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.002)


@dataclass(frozen=True)
class Answer:
    """What a client says of one command: nanoseconds around it, its result, and what else it shows."""

    began: int
    ended: int
    result: int
    more: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Began and synchronised of each kernel, as `stamps` shows them."""
        return [(int(began), int(ended)) for began, ended in zip(self.more[::2], self.more[1::2], strict=True)]


class ClientDied(Exception):
    """A client ended where an answer was due."""


class Client:
    """A scripted client process. Ended, if it still runs, with its machine."""

    def __init__(self, command: list[str], environment: dict[str, str], complaints: Path) -> None:
        self._complaints = complaints
        with complaints.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, bufsize=0
            )
        self._heard = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> list[str]:
        """The lines that the hook has written on stderr."""
        return [line for line in self._complaints.read_text().splitlines() if line.startswith("orion:")]

    def send(self, command: str) -> None:
        """Tell it a command without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")

    def heard_something(self, seconds: float) -> bool:
        """Return whether an answer comes within `seconds`."""
        assert self.process.stdout is not None
        return b"\n" in self._heard or bool(select.select([self.process.stdout], [], [], seconds)[0])

    def answer(self, seconds: float = DEADLINE) -> Answer:
        """Return the next answer."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._heard:
            left = deadline - time.monotonic()
            assert left > 0, f"no answer within {seconds} s"
            if not select.select([self.process.stdout], [], [], left)[0]:
                continue
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise ClientDied(self.process.wait(seconds))
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        status, _, began, ended, result, *more = line.decode().split()
        assert status == "ok"
        return Answer(int(began), int(ended), int(result), [float(number) for number in more])

    def do(self, command: str, seconds: float = DEADLINE) -> Answer:
        """Tell it a command and return the answer, whatever its result."""
        self.send(command)
        return self.answer(seconds)

    def must(self, command: str, seconds: float = DEADLINE) -> Answer:
        """Tell it a command that has to succeed."""
        answer = self.do(command, seconds)
        assert answer.result == 0, f"{command}: CUDA result {answer.result}"
        return answer

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal and return when, in monotonic nanoseconds."""
        when = time.monotonic_ns()
        self.process.send_signal(number)
        return when

    def reap(self, seconds: float = DEADLINE) -> int:
        """Wait for its end and return its status."""
        return self.process.wait(seconds)

    def cpu_seconds(self) -> float:
        """CPU time so far of all its threads but the simulated GPU's own, which does what hardware does elsewhere."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        counted = (thread for thread in threads if (thread / "comm").read_text().strip() != "sim-keeper")
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in counted) / 1e9

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(DEADLINE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Machine:
    """Simulated GPUs of its own, an agent's root, and clients. A context manager."""

    def __init__(self, build: Path, gpus: int = 1) -> None:
        self.build = build
        self.folder = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))
        self.root = self.folder / "root"
        self._clients: list[Client] = []
        self._agents: list[subprocess.Popen[bytes]] = []
        self._asked: AgentClient | None = None
        self._started = 0
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ORION_")}
        self.environment |= {"ORION_SIM_STATE": str(self.folder / "sim"), "ORION_SIM_GPUS": str(gpus)}
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
        return self.build / "liborion_hook.so"

    @property
    def program(self) -> Path:
        return self.build / "test" / "client_scripted"

    # -- The agent -----------------------------------------------------------------------------------------------------

    @property
    def agent_pid(self) -> int:
        return self._agents[-1].pid

    def start_agent(self, *options: str) -> None:
        """Start an agent on the machine's root and wait until it serves."""
        command = [sys.executable, "-m", "orion.node_agent", "--root", str(self.root), "--gpus", "simulated"]
        command += ["--simulated-library", str(self.simulated_library), *options]
        if "--metrics-address" not in options:
            command += ["--metrics-address", ""]
        log = self.folder / f"agent-{len(self._agents)}.log"
        with log.open("wb") as stderr:
            agent = subprocess.Popen(command, env=self.environment, stderr=stderr)
        self._agents.append(agent)
        eventually(lambda: " agent: serves " in log.read_text() or agent.poll() is not None, "the agent serves")
        assert agent.poll() is None, log.read_text()

    def agent_log(self) -> str:
        return (self.folder / f"agent-{len(self._agents) - 1}.log").read_text()

    def kill_agent(self) -> None:
        if self._asked is not None:
            self._asked.close()
            self._asked = None
        self._agents[-1].kill()
        self._agents[-1].wait(DEADLINE)

    @property
    def agent(self) -> AgentClient:
        """The administrators' connection."""
        if self._asked is None:
            self._asked = AgentClient(self.root)
        return self._asked

    def gpu(self, index: int = 0) -> agent_pb2.Gpu:
        """Return a GPU as the agent shows it now."""
        return next(gpu for gpu in self.agent.snapshot().gpus if gpu.uuid == self.uuids[index])

    def shown(self, client: Client, gpu: int = 0) -> agent_pb2.Client | None:
        """Return a client as the agent shows it now, or None if it is not there."""
        clients = (shown for slot in self.gpu(gpu).slots for shown in slot.clients)
        return next((shown for shown in clients if shown.process_id == client.pid), None)

    def state_of(self, client: Client, gpu: int = 0) -> str:
        shown = self.shown(client, gpu)
        return "" if shown is None else shown.state

    def until(self, client: Client, state: str, gpu: int = 0, seconds: float = DEADLINE) -> None:
        """Wait until the agent shows the client in that state; "" is gone."""
        eventually(lambda: self.state_of(client, gpu) == state, f"{client.pid} is {state or 'gone'}", seconds)

    def until_joined(self, *clients: Client, gpu: int = 0) -> None:
        for client in clients:
            eventually(lambda client=client: self.shown(client, gpu), f"{client.pid} has joined")  # type: ignore[misc]

    def until_known(self, hp: Client, *clients: Client) -> None:
        """Wait until be clients that run already have heard of an hp client: the agent gathers news for 20 ms."""

        def waits(be: Client) -> bool:
            with busy(hp, 5) as launched:
                ran = be.must("run 1 10").ended
            return ran >= launched.began + 5 * MILLISECOND

        for be in clients:
            eventually(lambda be=be: waits(be), f"{be.pid} waits for {hp.pid}")  # type: ignore[misc]
        self.until(hp, "idle")

    # -- Clients -------------------------------------------------------------------------------------------------------

    def client_root(self, *slots: str) -> Path:
        """Make what a container sees as /run/orion: one slot of each GPU, "" for none."""
        self._started += 1
        root = self.folder / f"c{self._started}"
        (root / "slots").mkdir(parents=True)
        for uuid, slot in zip(self.uuids, slots, strict=False):
            if slot:
                (root / "slots" / uuid).symlink_to(self.root / "gpus" / uuid / slot)
        return root

    def client_environment(self, root: Path | None) -> dict[str, str]:
        """Return the environment of a client; without a root it is not under the hook."""
        environment = self.environment | {"LD_LIBRARY_PATH": str(self.build / "sim")}
        if root is not None:
            environment |= {"ORION_ROOT": str(root), "LD_PRELOAD": str(self.hook)}
        return environment

    def start_in(self, root: Path | None, *prefix: str, **environment: str) -> Client:
        """Start a client process that sees that root; it has not used a GPU yet."""
        self._started += 1
        complaints = self.folder / f"stderr-{self._started}"
        client = Client([*prefix, str(self.program)], self.client_environment(root) | environment, complaints)
        self._clients.append(client)
        return client

    def start(self, *slots: str) -> Client:
        """Start a client in these slots ("hp-0", "be-3"), one a GPU, and let it use the first GPU.

        It has joined when this returns, unless no agent serves.
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


@contextlib.contextmanager
def busy(hp: Client, milliseconds: float) -> Iterator[Answer]:
    """hp's GPU is busy from the start of the body on, with one kernel of that length; ends with hp drained.

    Yields:
        the answer of the launch.
    """
    yield hp.must(f"launch 1 {milliseconds * 1000:.0f}")
    hp.must("sync", DEADLINE + milliseconds / 1000)


def warm(be: Client, microseconds: int, launches: int = 40) -> None:
    """Let a be client learn how long a kernel takes, so that it has no unknown kernel any more."""
    for _ in range(launches):
        be.must(f"run 1 {microseconds}")


def percentile(values: list[float], of_hundred: float) -> float:
    """Return a value that `of_hundred` percent of the values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * of_hundred / 100))]


def figure(what: str, values: list[float], unit: str) -> None:
    """Print a measured figure (shown by pytest -s)."""
    text = f"median {statistics.median(values):.3f} {unit}"
    if len(values) > 1:
        text += f", p99 {percentile(values, 99):.3f} {unit}, most {max(values):.3f} {unit}"
    print(f"\nmeasured: {what}: {text}, of {len(values)}")
