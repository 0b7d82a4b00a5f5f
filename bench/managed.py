"""Orion on a root of its own, for the length of an experiment: an agent, its slots, and clients' environments.

The agent is started on a temporary folder, so an experiment neither needs nor disturbs the agent that a machine
already runs. What a client sees there is what a container sees: `$ORION_ROOT/slots/<GPU uuid>`, its one slot.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import grpc

from orion import hook
from orion.hook import policy_table
from orion.node_agent.api import agent_pb2, agent_pb2_grpc

START_SECONDS = 20.0
# `python -m orion.node_agent`, which ends with this process, even if this one is killed.
AGENT = """
import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
runpy.run_module("orion.node_agent", run_name="__main__", alter_sys=True)
"""
CALL_SECONDS = 5.0
JOIN_SECONDS = 10.0


class AgentError(RuntimeError):
    """The agent did not start, or a client did not join it; the text says what was seen."""


@contextlib.contextmanager
def machine(simulated: bool, mode: str = "timeslice", seed: str = "") -> Iterator[dict[str, str]]:
    """Offer an environment in which unhooked clients find a GPU.

    Args:
        simulated: A simulated GPU that nobody else uses and that is gone afterwards; else the machine's own.
        mode: Of a simulated GPU: timeslice or mps.
        seed: Tells simulated GPUs apart: equal seeds have equal UUIDs; empty: the machine's usual ones.
    """
    if not simulated:
        yield dict(os.environ)
        return
    libraries = [str(hook.simulated_driver().parent), os.environ.get("LD_LIBRARY_PATH", "")]
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"  # memory: a disk's write-back would be felt
    with tempfile.TemporaryDirectory(prefix="orion-", dir=shared, ignore_cleanup_errors=True) as state:
        reported = {"ORION_SIM_STATE": state, "ORION_SIM_MODE": mode, **({"ORION_SIM_SEED": seed} if seed else {})}
        yield {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, libraries)), **reported}


def hooked(environment: Mapping[str, str], baselines: bool) -> dict[str, str]:
    """Return the variables that put a process under the hook.

    Args:
        environment: The process's other variables.
        baselines: Whether it is the hook that knows published schedulers.
    """
    preloads = [str(hook.library(baselines)), environment.get("LD_PRELOAD", "")]
    return {"LD_PRELOAD": ":".join(filter(None, preloads)), **_table(baselines)}


def _table(baselines: bool) -> dict[str, str]:
    return {policy_table.BASELINES: "1"} if baselines else {}


class ManagedGPU:
    """One GPU of a machine under a private agent; a context manager that leaves nothing behind."""

    def __init__(self, environment: dict[str, str], simulated: bool, uuid: str = "", baselines: bool = False) -> None:
        """Prepare; entering the context starts the agent.

        Args:
            environment: Of `machine`.
            simulated: As there.
            uuid: Which GPU; empty: the first.
            baselines: Whether the agent and its clients know published schedulers.
        """
        self._baselines = baselines
        self._uuid = uuid
        self._simulated = simulated
        self._base = environment
        self._root = Path()
        self._agent: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in __exit__)
        self._stub: agent_pb2_grpc.AgentStub
        self._channel: grpc.Channel
        self.gpu = agent_pb2.Gpu()

    def __enter__(self) -> Self:
        self._root = Path(tempfile.mkdtemp(prefix="orion-", dir="/tmp"))  # short: Unix sockets allow 107 characters
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def client_environment(self, role: str, weight: float = 0.0) -> dict[str, str]:
        """Open a slot and return the environment of its clients.

        Args:
            role: "hp" or "be".
            weight: Of a be slot, its part of what be gets; 0: the agent's default.
        """
        request = agent_pb2.OpenSlotRequest(
            gpu=self.gpu.uuid, role=role.upper(), owner_process_id=os.getpid(), weight=weight
        )
        slot = self._ask(self._stub.OpenSlot, request)
        seen = self._root / "clients" / slot.name
        (seen / "slots").mkdir(parents=True, exist_ok=True)
        (seen / "slots" / self.gpu.uuid).symlink_to(slot.directory)
        return {**self._base, **hooked(self._base, self._baselines), "ORION_ROOT": str(seen)}

    def wait_for_clients(self, count: int) -> None:
        """Wait until so many clients have joined: a hook without its agent gates nothing."""
        deadline = time.monotonic() + JOIN_SECONDS
        while (joined := sum(len(slot.clients) for slot in self.snapshot().slots)) < count:
            if time.monotonic() > deadline:
                raise AgentError(f"{joined} of {count} clients joined the agent; it said:\n{self._said()}")
            time.sleep(0.02)

    def wait_for_process(self, process_id: int) -> None:
        """Wait until that process has joined."""
        deadline = time.monotonic() + JOIN_SECONDS
        while all(client.process_id != process_id for slot in self.snapshot().slots for client in slot.clients):
            if time.monotonic() > deadline:
                raise AgentError(f"process {process_id} did not join the agent; it said:\n{self._said()}")
            time.sleep(0.02)

    def set_policy(self, *, policy: str = "", **fields: float) -> None:
        """Change how the GPU is shared; fields are those of `hook/policy_table.py`, and what is not named stays.

        Raises:
            AgentError: The agent refuses; its own sentence.
        """
        self._ask(self._stub.SetPolicy, agent_pb2.SetPolicyRequest(gpu=self.gpu.uuid, policy=policy, fields=fields))

    def snapshot(self) -> agent_pb2.Gpu:
        """Return the GPU with its slots and clients as the agent sees them now."""
        gpus = self._ask(self._stub.GetSnapshot, agent_pb2.SnapshotRequest()).gpus
        current: agent_pb2.Gpu = next(gpu for gpu in gpus if gpu.uuid == self.gpu.uuid)
        return current

    def _start(self) -> None:
        gpus = ["simulated", "--simulated-library", str(hook.simulated_driver())] if self._simulated else ["nvml"]
        command = [sys.executable, "-c", AGENT, "--root", str(self._root), "--gpus", *gpus]
        self._agent = subprocess.Popen(
            [*command, "--metrics-address", "", "--hp-slots", "0", "--be-slots", "0"],
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
                raise AgentError(f"the node agent did not start; it said:\n{self._said()}")
            time.sleep(0.02)
        try:
            answer = self._stub.GetSnapshot(agent_pb2.SnapshotRequest(), timeout=CALL_SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            why = f"the node agent does not answer ({error.code().name}); it said:\n{self._said()}"
            raise AgentError(why) from error
        gpus = answer.gpus
        chosen = [gpu for gpu in gpus if self._uuid in ("", gpu.uuid)]
        if not chosen:
            raise AgentError(f"the node agent found no GPU {self._uuid}; it said:\n{self._said()}")
        self.gpu = chosen[0]

    def _ask(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise AgentError(f"the node agent refuses: {error.details() or error.code().name}") from error

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
