"""A private Orion for one experiment: an agent, its slots, and the clients' environments.

The agent uses a temporary folder as its root, so an experiment neither needs nor disturbs an agent that the machine
already runs. A client finds its slot in the same place as in a container: `$ORION_ROOT/slots/<GPU uuid>`.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import grpc

from orion import hook
from orion.errors import Unavailable
from orion.hook import policy_table
from orion.node_agent.api import agent_pb2, agent_pb2_grpc

START_SECONDS = 20.0
# Runs `python -m orion.node_agent`. The kernel ends the agent when this process ends, even if this process is killed.
AGENT = """
import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
runpy.run_module("orion.node_agent", run_name="__main__", alter_sys=True)
"""
CALL_SECONDS = 5.0
JOIN_SECONDS = 10.0


@contextlib.contextmanager
def machine(simulated: bool, mode: str = "timeslice", seed: str = "") -> Iterator[dict[str, str]]:
    """Yield an environment in which processes without the hook find a GPU.

    Args:
        simulated: Create a private simulated GPU, which ends with the context; else use the machine's GPU.
        mode: Mode of a simulated GPU: timeslice or mps.
        seed: Seed of a simulated GPU's UUID: equal seeds give equal UUIDs; empty: the usual UUID.
    """
    if not simulated:
        yield dict(os.environ)
        return
    libraries = [str(hook.simulated_driver().parent), os.environ.get("LD_LIBRARY_PATH", "")]
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"  # in memory: a disk's write-back adds delays
    with tempfile.TemporaryDirectory(prefix="orion-", dir=shared, ignore_cleanup_errors=True) as state:
        settings = {"ORION_SIM_STATE": state, "ORION_SIM_MODE": mode, **({"ORION_SIM_SEED": seed} if seed else {})}
        yield {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, libraries)), **settings}


def hooked(environment: Mapping[str, str], baselines: bool) -> dict[str, str]:
    """Return the variables that preload the hook into a process.

    Args:
        environment: The process's other variables.
        baselines: Use the library of the hook that also has the baselines: schedulers of other publications.
    """
    preloads = [str(hook.library(baselines)), environment.get("LD_PRELOAD", "")]
    return {"LD_PRELOAD": ":".join(filter(None, preloads)), **_table(baselines)}


def _table(baselines: bool) -> dict[str, str]:
    return {policy_table.BASELINES: "1"} if baselines else {}


def _first_visible(environment: Mapping[str, str]) -> str:
    """Return the UUID or the number that is first in CUDA_VISIBLE_DEVICES; empty: the variable is not set."""
    return environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()


class ManagedGPU:
    """One GPU of a machine under a private agent; a context manager that ends the agent and removes its files."""

    def __init__(
        self,
        environment: dict[str, str],
        simulated: bool,
        uuid: str = "",
        baselines: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """Store the settings; entering the context starts the agent.

        Args:
            environment: The environment that `machine` yielded.
            simulated: The same value as for `machine`.
            uuid: UUID of the GPU; empty: the one that is first in CUDA_VISIBLE_DEVICES, or the first of the machine.
            baselines: Whether the agent and its clients have the baselines: schedulers of other publications.
            options: More options of the agent.
        """
        self._baselines = baselines
        self._options = list(options)
        self._wanted = uuid or _first_visible(environment)
        self._simulated = simulated
        self._base = environment
        self._root = Path()
        self._agent: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in __exit__)
        self._stub: agent_pb2_grpc.AgentStub
        self._channel: grpc.Channel
        self.gpu = agent_pb2.Gpu()
        self._others: list[str] = []

    def __enter__(self) -> Self:
        self._root = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))  # short: Unix sockets allow 107 characters
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def client_environment(
        self,
        role: str,
        request: float = 0.0,
        all_gpus: bool = False,
        memory: Mapping[str, Any] | None = None,
        uuid: str = "",
    ) -> dict[str, str]:
        """Open a slot and return the environment of its clients.

        Args:
            role: "hp" or "be".
            request: The part of the GPU's time that a be slot requests; 0: none.
            all_gpus: Open a slot on each other GPU of the machine, too: the clients are the ranks of a job.
            memory: The fields of OpenSlotRequest about memory; None: no limit, and no sharing.
            uuid: The GPU of the slot, which its clients then see alone; empty: this one.
        """
        slot = self._open(uuid or self.gpu.uuid, role, request, **(memory or {}))
        seen = self._root / "clients" / uuid / slot.name
        (seen / "slots").mkdir(parents=True, exist_ok=True)
        place = seen / "slots" / slot.gpu
        place.unlink(missing_ok=True)
        place.symlink_to(slot.directory)
        for other in self._others if all_gpus else ():
            (seen / "slots" / other).symlink_to(self._open(other, role, request).directory)
        only = {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {}
        own = only | hook.role_environment(role) | {"ORION_ROOT": str(seen)}
        return {**self._base, **hooked(self._base, self._baselines), **own}

    def slot_directory(self, name: str) -> Path:
        """Return the directory of a slot of this GPU."""
        return Path(next(slot.directory for slot in self.snapshot().slots if slot.name == name))

    def close_slot(self, name: str, seconds: float) -> None:
        """Close a slot of this GPU once its clients are gone.

        Raises:
            Unavailable: they are still there after so many seconds.
        """

        def problem() -> str:
            has_clients = any(slot.clients for slot in self.snapshot().slots if slot.name == name)
            return f"slot {name} still has clients" if has_clients else ""

        self._wait_while(problem, seconds)
        self._ask(self._stub.CloseSlot, agent_pb2.SlotRequest(gpu=self.gpu.uuid, name=name))

    def wait_for_clients(self, count: int) -> None:
        """Wait until `count` clients have joined the agent; before a hook joins, it stops no launches."""

        def problem() -> str:
            joined = sum(len(slot.clients) for slot in self.snapshot().slots)
            return f"{joined} of {count} clients joined the agent" if joined < count else ""

        self._wait_while(problem, JOIN_SECONDS)

    def wait_for_process(self, process_id: int) -> None:
        """Wait until the process has joined the agent."""

        def problem() -> str:
            joined = any(client.process_id == process_id for slot in self.snapshot().slots for client in slot.clients)
            return "" if joined else f"process {process_id} did not join the agent"

        self._wait_while(problem, JOIN_SECONDS)

    def _wait_while(self, problem: Callable[[], str], seconds: float) -> None:
        """Wait until there is no problem any more; raise Unavailable with the last one if that takes longer."""
        deadline = time.monotonic() + seconds
        while said := problem():
            if time.monotonic() > deadline:
                raise Unavailable(f"{said}; the agent's output:\n{self._said()}")
            time.sleep(0.02)

    def set_policy(self, *, policy: str = "", **fields: float) -> None:
        """Change the GPU's policy. The fields are those of `hook/policy_table.py`; other fields keep their values.

        Raises:
            Unavailable: The agent refuses the change; the text has the agent's reason.
        """
        self._ask(self._stub.SetPolicy, agent_pb2.SetPolicyRequest(gpu=self.gpu.uuid, policy=policy, fields=fields))

    def set_grant(self, slot: str, request: float = 0.0, limit: float = 0.0) -> None:
        """Change the request and the limit of a slot, as parts of the GPU's time; 0: no change."""
        asked = agent_pb2.SetGrantRequest(gpu=self.gpu.uuid, name=slot, request=request, limit=limit)
        self._ask(self._stub.SetGrant, asked)

    def park(self, slot: str, away: bool) -> None:
        """Want a slot's processes out of the GPU's memory, or no longer want that."""
        self._ask(self._stub.ParkSlot, agent_pb2.ParkSlotRequest(gpu=self.gpu.uuid, name=slot, away=away))

    def agent_cpu_seconds(self) -> float:
        """Return the CPU time that the agent has used so far."""
        assert self._agent is not None
        times = Path(f"/proc/{self._agent.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    def snapshot(self) -> agent_pb2.Gpu:
        """Return the agent's current view of the GPU, its slots and clients."""
        return next(gpu for gpu in self.gpus() if gpu.uuid == self.gpu.uuid)

    def gpus(self) -> list[agent_pb2.Gpu]:
        """Return the agent's current view of all GPUs of the machine."""
        return list(self._ask(self._stub.GetSnapshot, agent_pb2.SnapshotRequest()).gpus)

    def uuids(self) -> list[str]:
        """Return the UUIDs of all GPUs of the machine, this one first."""
        return [self.gpu.uuid, *self._others]

    def _open(self, gpu: str, role: str, request: float, **memory: Any) -> agent_pb2.Slot:
        owner = 0 if memory else os.getpid()  # what one process owns leaves the GPU's memory together
        asked = agent_pb2.OpenSlotRequest(gpu=gpu, role=role.upper(), owner_process_id=owner, request=request, **memory)
        opened: agent_pb2.Slot = self._ask(self._stub.OpenSlot, asked)
        return opened

    def _start(self) -> None:
        gpus = ["simulated", "--simulated-library", str(hook.simulated_driver())] if self._simulated else ["nvml"]
        command = [sys.executable, "-Pc", AGENT, "--root", str(self._root), "--gpus", *gpus]
        self._agent = subprocess.Popen(
            [*command, "--metrics-address", "", "--hp-slots", "0", "--be-slots", "0", *self._options],
            env={**self._base, **_table(self._baselines)},
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
        )
        self._channel = grpc.insecure_channel(f"unix:{self._root / 'agent.sock'}")
        self._stub = agent_pb2_grpc.AgentStub(self._channel)  # type: ignore[no-untyped-call]
        deadline = time.monotonic() + START_SECONDS
        while not (self._root / "agent.sock").exists():
            if self._agent.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"the node agent did not start; its output:\n{self._said()}")
            time.sleep(0.02)
        try:
            answer = self._stub.GetSnapshot(agent_pb2.SnapshotRequest(), timeout=CALL_SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            why = f"the node agent does not answer ({error.code().name}); its output:\n{self._said()}"
            raise Unavailable(why) from error
        gpus = answer.gpus
        chosen = [gpu for gpu in gpus if self._wanted in ("", gpu.uuid, str(gpu.index))]
        if not chosen:
            wanted = " ".join(["no GPU", self._wanted]).rstrip()
            raise Unavailable(f"the node agent found {wanted} (--simulated needs none); its output:\n{self._said()}")
        self.gpu = chosen[0]
        self._others = [gpu.uuid for gpu in gpus if gpu.uuid != self.gpu.uuid]

    def _ask(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise Unavailable(f"the node agent refuses: {error.details() or error.code().name}") from error

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-2000:] or "(nothing)"

    def _end(self) -> None:
        if self._agent is not None:
            self._channel.close()
            self._agent.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._agent.wait(3)
            self._agent.kill()
            self._agent.wait()
        self._errors.close()
        shutil.rmtree(self._root, ignore_errors=True)
