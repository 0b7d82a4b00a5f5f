"""The administrators' interface: `api/agent.proto` on a Unix socket that only root can reach."""

import asyncio
import contextlib
import errno
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from orion.crds.allocation import Giver
from orion.errors import Conflict, Invalid, OrionError
from orion.hook import layout
from orion.node_agent import snapshots
from orion.node_agent.agent import Agent
from orion.node_agent.api import agent_pb2, agent_pb2_grpc
from orion.node_agent.clients.connections import Identity, identity
from orion.node_agent.mps.modes import PATIENCE_SECONDS
from orion.node_agent.service import answers, requests
from orion.node_agent.slots.memory_sharing import MemorySharing

SOCKET = "agent.sock"

_SMALLEST_INTERVAL_SECONDS = 0.1
_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT)

Context = grpc.aio.ServicerContext[Any, Any]
Answer = TypeVar("Answer")
Method = Callable[["AgentService", Any, Context], Awaitable[Answer]]


def _answering(method: Method[Answer]) -> Method[Answer]:
    """Convert the agent's errors into gRPC errors."""

    @functools.wraps(method)
    async def answer(self: "AgentService", request: Any, context: Context) -> Answer:
        try:
            return await method(self, request, context)
        except OrionError as error:
            await context.abort(grpc.StatusCode[error.grpc_code], str(error))
        except OSError as error:
            if error.errno in _OF_RESOURCES:
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, f"the agent's node has no resources left: {error}"
                )
            await context.abort(
                grpc.StatusCode.INTERNAL,
                f"the agent cannot do {method.__name__}: {error}; if that is a file, make sure that the agent can "
                f"write to its folder {self._agent.root.path}, and try again",
            )
        raise AssertionError("abort does not return")

    return answer


class AgentService(agent_pb2_grpc.AgentServicer):
    """Each method checks the request, calls the agent, and converts the result."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    @_answering
    async def GetSnapshot(self, request: Any, context: Context) -> agent_pb2.Snapshot:  # noqa: N802
        """Return the state of all GPUs."""
        return answers.snapshot(await snapshots.take(self._agent))

    async def WatchSnapshots(self, request: Any, context: Context) -> AsyncIterator[agent_pb2.Snapshot]:  # noqa: N802
        """Return the state of all GPUs at intervals."""
        try:
            interval = requests.check(requests.SnapshotRequest, request).interval_ms / 1000
        except Invalid as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        while True:
            yield answers.snapshot(await snapshots.take(self._agent))
            await asyncio.sleep(max(interval, _SMALLEST_INTERVAL_SECONDS))

    @_answering
    async def OpenSlot(self, request: Any, context: Context) -> agent_pb2.Slot:  # noqa: N802
        """Open or find a slot."""
        asked = requests.check(requests.OpenSlotRequest, request)
        role = layout.Role(asked.role)
        asked.refuse_for(role)
        asked.refuse_beside_rule()
        if asked.rule:
            slot = self._agent.rules.open(asked.gpu, asked.rule, asked.owner_process_id)
            return self._slot(slot.gpu, slot.name)
        slot = self._agent.slots.open(
            asked.gpu,
            asked.name,
            role,
            asked.memory_limit_bytes,
            asked.owner_process_id,
            asked.request_milli or 0,
            asked.limit_milli or 0,
            memory_sharing=asked.sharing(role, MemorySharing(), asked.memory_limit_bytes),
        )
        return self._slot(slot.gpu, slot.name)

    @_answering
    async def CloseSlot(self, request: Any, context: Context) -> agent_pb2.Empty:  # noqa: N802
        """Close a slot, unless its processes are away: without the slot nobody could let them back."""
        asked = requests.check(requests.SlotRequest, request)
        shared_gpu = self._agent.gpu(asked.gpu).shared_gpu
        slot = shared_gpu.slot(asked.name)
        if slot.parking.state in ("leaving", "parked", "returning") and shared_gpu.has_clients(slot):
            raise Conflict(
                f"slot {slot.name} has processes that are {slot.parking.state}, and could not come back without it; "
                f"let them back with `orion unpark {slot.name}`, or end them"
            )
        self._agent.slots.close(asked.gpu, asked.name)
        return agent_pb2.Empty()

    @_answering
    async def PrepareSlot(self, request: Any, context: Context) -> agent_pb2.PreparedSlot:  # noqa: N802
        """Reset a slot for another container."""
        asked = requests.check(requests.SlotRequest, request)
        if asked.name not in self._agent.gpu(asked.gpu).shared_gpu.slots:
            await self._agent.holders.missed()
        # Use half of the remaining time, so that the caller gets the reason instead of a timeout.
        left = context.time_remaining() or 2 * PATIENCE_SECONDS
        await self._agent.modes.settled(asked.gpu, min(PATIENCE_SECONDS, left / 2))
        held = self._agent.gpu(asked.gpu).shared_gpu.slots.get(asked.name)
        if held is not None and held.claim is not None:
            raise Conflict(
                f"slot {asked.name} of GPU {asked.gpu} is held by a ResourceClaim: delete the pods that use claims "
                "before a device plugin gives this node's slots"
            )
        if (ownership := self._agent.advertising.ownership) is not None:
            ownership.refuse(Giver.DEVICE_PLUGIN)
        slot = self._agent.slots.prepare(asked.gpu, asked.name)
        prepared = await self._agent.holders.prepared(slot)
        return agent_pb2.PreparedSlot(
            slot=self._slot(asked.gpu, asked.name), fail_closed=prepared.fail_closed, pod=prepared.pod
        )

    @_answering
    async def HoldSlot(self, request: Any, context: Context) -> agent_pb2.Slot:  # noqa: N802
        """Give a slot to a claim."""
        asked = requests.check(requests.HoldSlotRequest, request)
        left = context.time_remaining() or 2 * PATIENCE_SECONDS
        await self._agent.modes.settled(asked.gpu, min(PATIENCE_SECONDS, left / 2))
        slot = self._agent.claims.hold(asked.gpu, asked.name, asked.claim, asked.had_it)
        if asked.await_grant:
            await self._agent.holders.granted(slot)
        return self._slot(slot.gpu, slot.name)

    @_answering
    async def ReleaseSlots(self, request: Any, context: Context) -> agent_pb2.Empty:  # noqa: N802
        """Take back a claim's slots."""
        self._agent.claims.release(requests.check(requests.ReleaseSlotsRequest, request).claim_uid)
        return agent_pb2.Empty()

    @_answering
    async def SetGrant(self, request: Any, context: Context) -> agent_pb2.Slot:  # noqa: N802
        """Change a slot's grant."""
        asked = requests.check(requests.SetGrantRequest, request)
        slot = self._agent.gpu(asked.gpu).shared_gpu.slot(asked.name)
        asked.refuse_for(slot.role, slot.grant.request_milli, slot.grant.limit_milli)
        limit = slot.grant.memory_limit_bytes if asked.memory_limit_bytes is None else asked.memory_limit_bytes
        sharing = asked.sharing(slot.role, slot.memory_sharing, limit)
        self._agent.slots.set_grant(
            asked.gpu, asked.name, asked.memory_limit_bytes, asked.request_milli, asked.limit_milli, sharing
        )
        return self._slot(asked.gpu, asked.name)

    @_answering
    async def ParkSlot(self, request: Any, context: Context) -> agent_pb2.Slot:  # noqa: N802
        """Want a slot's processes out of the GPU's memory, or no longer."""
        asked = requests.check(requests.ParkSlotRequest, request)
        self._agent.slots.park(asked.gpu, asked.name, asked.away)
        return self._slot(asked.gpu, asked.name)

    @_answering
    async def SetPolicy(self, request: Any, context: Context) -> agent_pb2.Gpu:  # noqa: N802
        """Change a GPU's policy."""
        asked = requests.check(requests.SetPolicyRequest, request)
        shared_gpu = self._agent.gpu(asked.gpu).shared_gpu
        try:
            policy = asked.changes.over(shared_gpu.policy)
        except ValueError as error:
            raise Invalid(str(error)) from None
        served = self._agent.set_policy(asked.gpu, policy)
        return answers.gpu(snapshots.of_gpu(served, self._agent.usage.known(shared_gpu.gpu)))

    @_answering
    async def SetProfile(self, request: Any, context: Context) -> agent_pb2.Slot:  # noqa: N802
        """Replace the profile of a slot."""
        asked = requests.check(requests.SetProfileRequest, request)
        self._agent.gpu(asked.gpu).set_profile(asked.name, asked.rows)
        return self._slot(asked.gpu, asked.name)

    @_answering
    async def GetRules(self, request: Any, context: Context) -> agent_pb2.Rules:  # noqa: N802
        """Return the rules of the resource file."""
        return agent_pb2.Rules(gpus=[answers.rules(uuid, self._agent.rules.of(uuid)) for uuid in self._agent.gpus])

    async def WatchDevices(self, request: Any, context: Context) -> AsyncIterator[agent_pb2.Devices]:  # noqa: N802
        """Yield what a device plugin may advertise, at once and at every change."""
        async for advertised in self._agent.advertising.watch():
            yield answers.devices(advertised)

    def _slot(self, gpu: str, name: str) -> agent_pb2.Slot:
        served = self._agent.gpu(gpu)
        return answers.slot(snapshots.of_slot(served, served.shared_gpu.slot(name)))


class AdministratorsServer:
    """The gRPC server on $ORION_ROOT/agent.sock, mode 0600."""

    def __init__(self, agent: Agent) -> None:
        self.path = agent.root.path / SOCKET
        self._identity: Identity | None = None
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        agent_pb2_grpc.add_AgentServicer_to_server(AgentService(agent), self._server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the socket cannot be made.
        """
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()  # left from a killed agent: this process holds the root's lock
        folder = os.open(self.path.parent, os.O_PATH | os.O_CLOEXEC)
        before = os.umask(0o177)
        try:
            # Through /proc, because the address of a UNIX socket holds only 107 bytes.
            self._server.add_insecure_port(f"unix:/proc/self/fd/{folder}/{SOCKET}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self.path}: {error}") from None
        finally:
            os.umask(before)
            os.close(folder)
        self.path.chmod(0o600)
        self._identity = identity(self.path)
        await self._server.start()

    @property
    def is_there(self) -> bool:
        """Whether this socket still exists at its path."""
        return identity(self.path) == self._identity

    async def stop(self) -> None:
        """Stop serving, and remove the socket."""
        await self._server.stop(grace=0.2)
        with contextlib.suppress(OSError):
            self.path.unlink()
