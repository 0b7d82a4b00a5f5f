"""A typed, blocking client of the agent, for command lines, the device plugin's threads and tests."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from orion.errors import OrionError, Unavailable
from orion.node_agent.api import agent_pb2, agent_pb2_grpc
from orion.node_agent.api.address import MESSAGE_BYTES, SOCKET, SocketAddress, listening_process

Answer = TypeVar("Answer")


class NoAgent(Unavailable):
    """No agent answers on the administrators' socket."""

    forbidden = False
    """ Whether the socket exists, but this user has no permission to use it. """
    listens = False
    """ Whether an agent listens, but does not answer. """


class RequestRefused(OrionError):
    """The agent answered with an error; `code` is its gRPC status code."""

    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class AgentClient:
    """A connection to the agent of one root; a context manager.

    Args:
        root: the agent's root directory.
        timeout: limit in seconds for connecting and for each request.

    Raises:
        NoAgent: no agent listens on the root's socket, or this user has no permission.
    """

    def __init__(self, root: Path, timeout: float = 5.0) -> None:
        self._socket = root.absolute() / SOCKET
        self._timeout = timeout
        if not os.access(self._socket, os.W_OK):
            raise self._no_agent(exists=self._exists())
        self._address = SocketAddress(self._socket.parent)
        options = [("grpc.max_receive_message_length", MESSAGE_BYTES)]
        self._channel = grpc.insecure_channel(self._address.target, options=options)
        self._stub = agent_pb2_grpc.AgentStub(self._channel)  # type: ignore[no-untyped-call]
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout)
        except grpc.FutureTimeoutError:
            self.close()
            raise self._no_answer() from None

    def snapshot(self) -> agent_pb2.Snapshot:
        """Return the current GPUs, slots and clients."""
        return self._ask(self._stub.GetSnapshot, agent_pb2.SnapshotRequest(), agent_pb2.Snapshot)

    def watch(self, interval: float) -> Iterator[agent_pb2.Snapshot]:
        """Return snapshots every ``interval`` seconds, without end.

        Raises:
            NoAgent: the agent has ended.
        """
        request = agent_pb2.SnapshotRequest(interval_ms=max(100, round(interval * 1000)))
        try:
            yield from self._stub.WatchSnapshots(request)
        except grpc.RpcError as error:
            raise self._explained(error) from None

    def open_slot(
        self,
        gpu: str,
        role: "agent_pb2.Role",
        *,
        name: str = "",
        memory_limit_bytes: int = 0,
        owner_process_id: int = 0,
        request: float = 0,
        limit: float = 0,
        rule: str = "",
        memory_request_bytes: int = 0,
        memory_parks: bool = False,
        memory_wait_ms: int = 0,
        memory_unified: bool = False,
    ) -> agent_pb2.Slot:
        """Open a slot, or find the open slot of that name; see `OpenSlotRequest`."""
        asked = agent_pb2.OpenSlotRequest(
            gpu=gpu,
            name=name,
            role=role,
            memory_limit_bytes=memory_limit_bytes,
            owner_process_id=owner_process_id,
            request=request,
            limit=limit,
            rule=rule,
            memory_request_bytes=memory_request_bytes,
            memory_parks=memory_parks,
            memory_wait_ms=memory_wait_ms,
            memory_unified=memory_unified,
        )
        return self._ask(self._stub.OpenSlot, asked, agent_pb2.Slot)

    def close_slot(self, gpu: str, name: str) -> None:
        """Close a slot."""
        self._ask(self._stub.CloseSlot, agent_pb2.SlotRequest(gpu=gpu, name=name), agent_pb2.Empty)

    def prepare_slot(self, gpu: str, name: str) -> agent_pb2.PreparedSlot:
        """Remove a slot's clients, and set the grant of the pod that holds the slot, or the default grant."""
        return self._ask(self._stub.PrepareSlot, agent_pb2.SlotRequest(gpu=gpu, name=name), agent_pb2.PreparedSlot)

    def hold_slot(self, gpu: str, name: str, claim: agent_pb2.ClaimOfSlot, *, had_it: bool = False) -> agent_pb2.Slot:
        """Give a slot to a claim; return the slot that the claim has."""
        asked = agent_pb2.HoldSlotRequest(gpu=gpu, name=name, claim=claim, had_it=had_it)
        return self._ask(self._stub.HoldSlot, asked, agent_pb2.Slot)

    def release_slots(self, claim_uid: str) -> None:
        """Take back a claim's slots."""
        asked = agent_pb2.ReleaseSlotsRequest(claim_uid=claim_uid)
        self._ask(self._stub.ReleaseSlots, asked, agent_pb2.Empty)

    def rules(self) -> agent_pb2.Rules:
        """Return the rules of the agent's resource file."""
        return self._ask(self._stub.GetRules, agent_pb2.RulesRequest(), agent_pb2.Rules)

    def watch_devices(self) -> Iterator[agent_pb2.Devices]:
        """Yield what a device plugin may advertise, at once and at every change, without end.

        Raises:
            NoAgent: the agent has ended.
        """
        try:
            yield from self._stub.WatchDevices(agent_pb2.WatchDevicesRequest())
        except grpc.RpcError as error:
            raise self._explained(error) from None

    def set_grant(
        self,
        gpu: str,
        name: str,
        *,
        memory_limit_bytes: int | None = None,
        request: float = 0,
        limit: float = 0,
        memory_request_bytes: int | None = None,
        memory_parks: bool | None = None,
        memory_wait_ms: int | None = None,
        memory_unified: bool | None = None,
    ) -> agent_pb2.Slot:
        """Change a slot's grant; running clients follow it. Values that are not given do not change."""
        asked = agent_pb2.SetGrantRequest(
            gpu=gpu,
            name=name,
            memory_limit_bytes=memory_limit_bytes,
            request=request,
            limit=limit,
            memory_request_bytes=memory_request_bytes,
            memory_parks=memory_parks,
            memory_wait_ms=memory_wait_ms,
            memory_unified=memory_unified,
        )
        return self._ask(self._stub.SetGrant, asked, agent_pb2.Slot)

    def park_slot(self, gpu: str, name: str, away: bool) -> agent_pb2.Slot:
        """Want a slot's processes out of the GPU's memory, or no longer; the agent then asks them or decides."""
        asked = agent_pb2.ParkSlotRequest(gpu=gpu, name=name, away=away)
        return self._ask(self._stub.ParkSlot, asked, agent_pb2.Slot)

    def set_policy(self, gpu: str, *, policy: str = "", **fields: float) -> agent_pb2.Gpu:
        """Change a GPU's policy. Fields that are not given do not change; `hook/policy_table.py` has the fields."""
        return self._ask(
            self._stub.SetPolicy, agent_pb2.SetPolicyRequest(gpu=gpu, policy=policy, fields=fields), agent_pb2.Gpu
        )

    def set_profile(self, gpu: str, name: str, rows: Iterable[agent_pb2.ProfileRow]) -> agent_pb2.Slot:
        """Replace the profile that a slot's clients receive; `api.profiles` makes the rows of a GPUProfile."""
        return self._ask(
            self._stub.SetProfile, agent_pb2.SetProfileRequest(gpu=gpu, name=name, rows=rows), agent_pb2.Slot
        )

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()
        self._address.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: Callable[..., Any], request: Any, answer: type[Answer]) -> Answer:
        try:
            result: Answer = method(request, timeout=self._timeout)
            return result
        except grpc.RpcError as error:
            raise self._explained(error) from None

    def _explained(self, error: grpc.RpcError) -> Exception:
        code, details = error.code(), error.details() or ""
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
            return self._no_answer()
        return RequestRefused(code, details)

    def _no_answer(self) -> NoAgent:
        try:
            process_id = listening_process(self._socket.parent)
        except BlockingIOError:  # so many wait for its answer
            process_id = 0
        except OSError:
            return self._no_agent(exists=False)
        process = f" (process {process_id})" if process_id else ""
        silent = NoAgent(f"the agent at {self._socket}{process} does not answer: is it stopped? `orion stop` ends it")
        silent.listens = True
        return silent

    def _exists(self) -> bool:
        try:
            return self._socket.exists()
        except PermissionError:  # it may be there, in a folder of another user
            return True

    def _no_agent(self, exists: bool) -> NoAgent:
        if exists:
            refused = NoAgent(
                f"this user may not ask the agent at {self._socket}: "
                "run this as the agent's user or as root, or give another --root"
            )
            refused.forbidden = True
            return refused
        return NoAgent(f"no agent listens at {self._socket}; start one with `orion agent --root {self._socket.parent}`")
