"""The connection to the node's agent: receives its snapshots, and asks it to prepare slots.

While the agent is away, its last snapshot stays in force. A file keeps the snapshot for this program's next process.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from orion.errors import Conflict, Unavailable, Unreadable
from orion.injection.current import CurrentSnapshot
from orion.injection.fail_closed import FailClosedPods
from orion.injection.slots import Slot
from orion.injection.snapshot import Snapshot, SnapshotFile, from_message
from orion.injection.waiting import saved_giver
from orion.node_agent.api import agent_pb2, agent_pb2_grpc
from orion.node_agent.api.address import MESSAGE_BYTES, SocketAddress

CHANNEL_OPTIONS = [
    # By default, channels to one address share a back-off: after a peer has died, this back-off delays new ones.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
]

_SETTLE_SECONDS = 0.2
""" Pause between attempts to reach the agent. """
_AGENT_ENDS = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
""" Status of a request whose agent is being replaced: the next agent may answer a retry. """

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class AgentLink:
    """Keeps the current snapshot equal to the agent's snapshot. Create it inside a running event loop.

    Args:
        root: the agent's directory.
        current: receives the snapshots.
        file: the file of the last snapshot.
        fail_closed: receives the pods that must not start without the hook.
        connected: called with True or False when the agent connects or disconnects.
        patience: seconds that a container's start waits for an agent that is being replaced.
    """

    def __init__(
        self,
        root: Path,
        current: CurrentSnapshot,
        file: SnapshotFile,
        fail_closed: FailClosedPods,
        connected: Callable[[bool], None],
        patience: float,
    ) -> None:
        self._root, self._current, self._file, self._fail_closed = root, current, file, fail_closed
        self._report, self._patience = connected, patience
        self._address: SocketAddress | None = None
        self._complaint, self._shape = "", ""
        self.connected = False
        self._channel: grpc.aio.Channel | None = None
        self._agent: agent_pb2_grpc.AgentStub | None = None

    def recall(self) -> None:
        """Use the last snapshot that a program saved on this node; log an error if the file is invalid."""
        try:
            message = self._file.load()
        except Unreadable as error:
            _log.error("agent: %s; there are no slots until the agent connects", error)
            return
        if message is not None:
            message.giver = saved_giver(self._root) or message.giver
            snapshot = from_message(message)
            self._current.take(snapshot, from_agent=False)
            _log.info("agent: its last snapshot is used until the agent connects: %s", _shape(snapshot))

    async def listen(self) -> None:
        """Keep the current snapshot equal to the agent's snapshot, for ever."""
        while True:
            try:
                stub = self._stub()
                async for message in stub.WatchDevices(agent_pb2.WatchDevicesRequest(), wait_for_ready=True):
                    self._take(message)
                self._lost("it ended the stream")
            except grpc.aio.AioRpcError as error:
                self._lost(f"{error.code().name}: {error.details()}")
            except OSError as error:
                self._lost(str(error))
            await asyncio.sleep(_SETTLE_SECONDS)

    async def prepare(self, slot: Slot) -> agent_pb2.PreparedSlot | None:
        """Ask the agent to prepare a slot for a new container; return None if no agent answers in time.

        Raises:
            Conflict, Unavailable: the agent answers that it cannot prepare the slot.
        """
        request = agent_pb2.SlotRequest(gpu=slot.gpu, name=slot.name)
        return await self._ask(
            lambda stub: stub.PrepareSlot, request, agent_pb2.PreparedSlot, self._patience, f"prepare slot {slot}"
        )

    async def hold(
        self, slot: Slot, claim: agent_pb2.ClaimOfSlot, had_it: bool, seconds: float, await_grant: bool = False
    ) -> agent_pb2.Slot | None:
        """Ask the agent to give a slot to a claim; return the slot that the claim has; None: no agent answers in time.

        Raises:
            Conflict: the slot is not free.
            Unavailable: the agent answers that it cannot give the slot.
        """
        request = agent_pb2.HoldSlotRequest(
            gpu=slot.gpu, name=slot.name, claim=claim, had_it=had_it, await_grant=await_grant
        )
        return await self._ask(
            lambda stub: stub.HoldSlot, request, agent_pb2.Slot, seconds, f"give slot {slot} to the claim"
        )

    async def release(self, claim_uid: str, seconds: float) -> bool:
        """Ask the agent to take back a claim's slots; return whether it has.

        Raises:
            Unavailable: the agent answers that it cannot.
        """
        request = agent_pb2.ReleaseSlotsRequest(claim_uid=claim_uid)
        answer = await self._ask(
            lambda stub: stub.ReleaseSlots, request, agent_pb2.Empty, seconds, "take back the slots of a claim"
        )
        return answer is not None

    async def claims(self, seconds: float) -> list[agent_pb2.ClaimOfSlot]:
        """Return the claims that have slots, one for each slot; empty: no agent answers in time.

        Raises:
            Unavailable: the agent answers that it cannot say.
        """
        request = agent_pb2.SnapshotRequest()
        answer = await self._ask(
            lambda stub: stub.GetSnapshot, request, agent_pb2.Snapshot, seconds, "list the claims that have slots"
        )
        slots = [slot for gpu in answer.gpus for slot in gpu.slots] if answer is not None else []
        return [slot.claim for slot in slots if slot.HasField("claim")]

    async def _ask(
        self,
        method: Callable[[agent_pb2_grpc.AgentStub], Any],
        request: object,
        _: type[Answer],
        seconds: float,
        what: str,
    ) -> Answer | None:
        """Return the agent's answer, also if the agent is replaced meanwhile; None: none answers in time.

        Raises:
            Conflict: the agent answers that the present state contradicts the request.
            Unavailable: the agent answers with another error.
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                answer: Answer = await method(self._stub())(request, timeout=left, wait_for_ready=True)
                return answer
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
                if error.code() not in _AGENT_ENDS:
                    kind = Conflict if error.code() is grpc.StatusCode.FAILED_PRECONDITION else Unavailable
                    raise kind(f"the node's agent cannot {what}: {error.details()}") from None
            except OSError:
                break
            await asyncio.sleep(_SETTLE_SECONDS)
        return None

    async def close(self) -> None:
        """End the connection."""
        if self._channel is not None:
            await self._channel.close(None)
        if self._address is not None:
            self._address.close()

    def _stub(self) -> agent_pb2_grpc.AgentStub:
        """Return the agent's interface; the channel connects once an agent listens.

        Raises:
            OSError: the root directory does not exist yet, and its path is too long for a socket address.
        """
        if self._agent is None:
            self._address = SocketAddress(self._root)
            self._channel = grpc.aio.insecure_channel(self._address.target, options=CHANNEL_OPTIONS)
            self._agent = agent_pb2_grpc.AgentStub(self._channel)  # type: ignore[no-untyped-call]
        return self._agent

    def _take(self, message: agent_pb2.Devices) -> None:
        if not self.connected:
            self.connected = True
            self._report(True)
            _log.info("agent: connected")
        snapshot = from_message(message)
        for gpu in snapshot.gpus.values():
            for pod in gpu.fail_open:
                self._fail_closed.note(pod, False)
            for pod in gpu.fail_closed:
                self._fail_closed.note(pod, True)
        before = self._current.snapshot
        if not self._current.take(snapshot):
            return
        if (shape := _shape(snapshot)) != self._shape:
            self._shape = shape
            _log.info("agent: its GPUs are now: %s", shape)
        for uuid, why in snapshot.not_advertised.items():
            if before is None or before.not_advertised.get(uuid) != why:
                _log.info("agent: %s is not advertised: %s", uuid, why)
        try:
            self._file.save(message)
            self._complaint = ""
        except OSError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error("agent: its snapshot cannot be saved for the next process: %s", error)

    def _lost(self, why: str) -> None:
        if self.connected:
            self.connected = False
            self._report(False)
            _log.warning("agent: disconnected (%s); its last snapshot stays in force", why)


def _shape(snapshot: Snapshot) -> str:
    hp = sum(slot.role == "hp" for gpu in snapshot.gpus.values() for slot in gpu.slots)
    be = sum(len(gpu.slots) for gpu in snapshot.gpus.values()) - hp
    sick = [f"{gpu.uuid} is unhealthy: {gpu.message}" for gpu in snapshot.gpus.values() if not gpu.healthy]
    sick += [f"{gpu.uuid} is cordoned" for gpu in snapshot.gpus.values() if gpu.cordoned]
    return "; ".join([f"{len(snapshot.gpus)} GPUs with {hp} hp and {be} be slots", *sick])
