"""The administrators' interface: `api/agent.proto` on a Unix socket that only root reaches."""

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from importlib import metadata
from typing import Any, TypeVar

import grpc
import grpc.aio

from orion.hook import layout
from orion.node_agent import requests, snapshots
from orion.node_agent.agent import Agent
from orion.node_agent.api import agent_pb2, agent_pb2_grpc
from orion.node_agent.errors import AgentError, Conflict, Invalid, NotFound
from orion.node_agent.settings import POLICY_KINDS

SOCKET = "agent.sock"

_SMALLEST_INTERVAL_SECONDS = 0.1
_U32 = 2**32 - 1
_STATUS: dict[type[AgentError], grpc.StatusCode] = {
    NotFound: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    Invalid: grpc.StatusCode.INVALID_ARGUMENT,
}
_POLICY_NAMES = {kind: name for name, kind in POLICY_KINDS.items()}

Context = grpc.aio.ServicerContext[Any, Any]
Answer = TypeVar("Answer")
Method = Callable[["AgentService", Any, Context], Awaitable[Answer]]


def version() -> str:
    """Return the version of this distribution; "unknown" in a checkout that is not installed."""
    try:
        return metadata.version("orion-gpu")
    except metadata.PackageNotFoundError:
        return "unknown"


def _answering(method: Method[Answer]) -> Method[Answer]:
    """Turn the agent's errors into gRPC's."""

    @functools.wraps(method)
    async def answer(self: "AgentService", request: Any, context: Context) -> Answer:
        try:
            return await method(self, request, context)
        except AgentError as error:
            await context.abort(_STATUS.get(type(error), grpc.StatusCode.INTERNAL), str(error))
        except OSError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the agent's machine refuses: {error}")
        raise AssertionError("abort does not return")

    return answer


class AgentService(agent_pb2_grpc.AgentServicer):
    """Each method: check the request, let the agent act, translate."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @_answering
    async def GetSnapshot(self, request: Any, context: Context) -> agent_pb2.Snapshot:  # noqa: N802
        """Return everything."""
        return _snapshot(await snapshots.take(self._agent))

    async def WatchSnapshots(self, request: Any, context: Context) -> AsyncIterator[agent_pb2.Snapshot]:  # noqa: N802
        """Return everything, again and again."""
        try:
            interval = requests.check(requests.SnapshotRequest, request).interval_ms / 1000
        except Invalid as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        while True:
            yield _snapshot(await snapshots.take(self._agent))
            await asyncio.sleep(max(interval, _SMALLEST_INTERVAL_SECONDS))

    @_answering
    async def OpenSlot(self, request: Any, context: Context) -> agent_pb2.Slot:  # noqa: N802
        """Make or find a slot."""
        asked = requests.check(requests.OpenSlotRequest, request)
        slot = self._agent.open_slot(
            asked.gpu, asked.name, layout.Role(asked.role), asked.memory_limit_bytes, asked.owner_process_id
        )
        return self._slot(slot.gpu, slot.name)

    @_answering
    async def CloseSlot(self, request: Any, context: Context) -> agent_pb2.Empty:  # noqa: N802
        """End a slot."""
        asked = requests.check(requests.SlotRequest, request)
        self._agent.close_slot(asked.gpu, asked.name)
        return agent_pb2.Empty()

    @_answering
    async def PrepareSlot(self, request: Any, context: Context) -> agent_pb2.Slot:  # noqa: N802
        """Make a slot ready for another container."""
        asked = requests.check(requests.SlotRequest, request)
        self._agent.prepare_slot(asked.gpu, asked.name)
        return self._slot(asked.gpu, asked.name)

    @_answering
    async def SetGrant(self, request: Any, context: Context) -> agent_pb2.Slot:  # noqa: N802
        """Change what a slot may do."""
        asked = requests.check(requests.SetGrantRequest, request)
        self._agent.set_grant(asked.gpu, asked.name, asked.memory_limit_bytes)
        return self._slot(asked.gpu, asked.name)

    @_answering
    async def SetPolicy(self, request: Any, context: Context) -> agent_pb2.Gpu:  # noqa: N802
        """Change how a GPU is shared."""
        asked = requests.check(requests.SetPolicyRequest, request)
        if 0 < asked.window_us < 50:
            raise Invalid(f"window_us: at least 50, not {asked.window_us}")
        board = self._agent.gpu(asked.gpu).board
        now = board.policy
        served = self._agent.set_policy(
            asked.gpu,
            replace(
                now,
                kind=POLICY_KINDS[asked.policy] if asked.policy else now.kind,
                window_ns=asked.window_us * 1000 or now.window_ns,
                linger_floor_ns=asked.linger_floor_us * 1000 or now.linger_floor_ns,
                linger_ceiling_ns=asked.linger_ceiling_us * 1000 or now.linger_ceiling_ns,
            ),
        )
        return _gpu(snapshots.of_gpu(served, self._agent.usage.known(board.gpu)))

    def _slot(self, gpu: str, name: str) -> agent_pb2.Slot:
        served = self._agent.gpu(gpu)
        return _slot(snapshots.of_slot(served, served.board.slot(name)))


class AdministratorsServer:
    """The gRPC server on $ORION_ROOT/agent.sock, mode 0600."""

    def __init__(self, agent: Agent) -> None:
        self._path = agent.root.path / SOCKET
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        agent_pb2_grpc.add_AgentServicer_to_server(AgentService(agent), self._server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the socket cannot be made.
        """
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()  # of an agent that was killed; the root's lock says that it is gone
        folder = os.open(self._path.parent, os.O_PATH | os.O_CLOEXEC)
        before = os.umask(0o177)
        try:
            # By /proc: a socket's address holds 107 bytes only.
            self._server.add_insecure_port(f"unix:/proc/self/fd/{folder}/{SOCKET}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._path}: {error}") from None
        finally:
            os.umask(before)
            os.close(folder)
        self._path.chmod(0o600)
        await self._server.start()

    async def stop(self) -> None:
        """Answer nobody any more."""
        await self._server.stop(grace=0.2)
        with contextlib.suppress(OSError):
            self._path.unlink()


def _snapshot(view: snapshots.AgentView) -> agent_pb2.Snapshot:
    return agent_pb2.Snapshot(
        agent_version=version(), agent_process_id=os.getpid(), gpus=[_gpu(each) for each in view.gpus]
    )


def _gpu(view: snapshots.GpuView) -> agent_pb2.Gpu:
    return agent_pb2.Gpu(
        uuid=view.gpu.uuid,
        index=view.gpu.index,
        model=view.gpu.model,
        simulated=view.gpu.simulated,
        memory_bytes=view.gpu.memory_bytes,
        policy=_POLICY_NAMES[view.policy.kind],
        window_us=view.policy.window_ns // 1000,
        hp_busy_ratio=view.hp_busy_ratio,
        slots=[_slot(slot) for slot in view.slots],
        memory_used_bytes=view.memory_used_bytes,
    )


def _slot(view: snapshots.SlotView) -> agent_pb2.Slot:
    return agent_pb2.Slot(
        gpu=view.gpu,
        name=view.name,
        role=agent_pb2.HP if view.role is layout.Role.HP else agent_pb2.BE,
        directory=view.directory,
        memory_limit_bytes=view.grant.memory_limit_bytes,
        window_share_us=view.grant.window_share_ns // 1000,
        clients=[_client(client) for client in view.clients],
    )


def _client(view: snapshots.ClientView) -> agent_pb2.Client:
    record = view.record
    return agent_pb2.Client(
        place=view.place,
        generation=view.generation,
        process_id=min(max(view.process_id, 0), _U32),
        command=view.command,
        state=view.state,
        launches=record.launches,
        gated_launches=record.gated_launches,
        gated_seconds=record.gated_ns / 1e9,
        busy_seconds=view.busy_ns / 1e9,
        linger_us=record.linger_ns // 1000,
        in_flight_us=record.in_flight_ns // 1000,
        memory_bytes=record.memory_bytes,
        condition=view.condition,
        joined_seconds_ago=view.joined_seconds_ago,
    )
