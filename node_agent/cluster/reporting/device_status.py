"""Builds the status of a GPUDevice from values that the agent has collected; it makes no calls."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from orion.crds.clients import ClientRow, PodReference
from orion.crds.conditions import Condition, ConditionType
from orion.crds.decimals import Number
from orion.crds.device_status import (
    ROWS_MAX,
    SHARING_MAX,
    SLOTS_MAX,
    AppliedPolicy,
    DeviceMemory,
    DeviceTime,
    GPUDeviceStatus,
    SlotCount,
    SlotCounts,
    SlotRow,
)
from orion.crds.durations import Duration
from orion.crds.parking import Parked
from orion.crds.policy import Oversubscribe, PolicyName, Priority
from orion.crds.quantities import Memory
from orion.crds.slot_usage import SlotUsage
from orion.node_agent.advertising.advertising import Verdict
from orion.node_agent.cluster.reporting import process_pods, unmanaged
from orion.node_agent.cluster.reporting.client_ratios import Ratios
from orion.node_agent.cluster.reporting.device_conditions import Finding, conditions, findings
from orion.node_agent.cluster.reporting.seen import Seen
from orion.node_agent.cluster.state import GpuState, HolderState
from orion.node_agent.gpus.keeper import GONE
from orion.node_agent.slots.holders import Holder
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.snapshots import ClientView, SlotView

_MEMORY_STEP = 1 << 20
_SENTENCE_MAX = 512
_STOPPED = "stopped"
_SETTLED_SECONDS = 9.5
""" For less than this after it joined, a slot's GPU time would soon be reported again, with other figures. """
_DEBT_STEP_NS = 100_000_000
_KEEPS_ROOM_SECONDS = 15
""" How often the agent writes that a slot keeps room: the operator evicts only while it does (evictions.py). """


def status_of(seen: Seen, before: Sequence[Condition], now: datetime | None = None) -> GPUDeviceStatus:
    """Return a GPU's status.

    Args:
        seen: what the agent knows of the GPU.
        before: the previous conditions; a transition time stays unless the status changes.
        now: the time, for tests.
    """
    gpu = seen.view.gpu
    rows = sorted(_rows(seen), key=_sort_key)
    return GPUDeviceStatus(
        observed_generation=seen.generation,
        node=seen.node,
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model[:128],
        simulated=gpu.simulated,
        health=_health(seen.verdict),
        mode=seen.mode,
        allocation=seen.giver.value if seen.giver else None,
        memory=_memory(seen),
        time=DeviceTime(reserved=Number.of_milli(seen.state.time_reserved_milli)),
        policy=_policy(seen.state),
        slots=_counts(seen.state),
        held_slots=list(_held(seen, now or datetime.now(UTC)))[:SLOTS_MAX],
        hp_busy_ratio=_ratio(seen.hp_busy_ratio),
        client_count=len(rows),
        clients=rows[:ROWS_MAX],
        unmanaged_process_count=len(seen.unmanaged),
        unmanaged=unmanaged.rows(seen.unmanaged),
        agent_version=seen.agent_version[:64],
        conditions=conditions(findings(seen, len(rows)), before, seen.generation, now),
    )


def gone_status(before: GPUDeviceStatus, why: str, message: str, generation: int | None) -> GPUDeviceStatus:
    """Return the status of a GPU that has gone. Another node's agent may then write its GPUDevice."""
    unknown = [Finding(kind, None, why, message) for kind in (ConditionType.READY, ConditionType.HOOK_INJECTED)]
    return GPUDeviceStatus(
        observed_generation=generation,
        node=before.node,
        uuid=before.uuid,
        index=before.index,
        model=before.model,
        simulated=before.simulated,
        health="Unknown",
        mode=before.mode,
        memory=DeviceMemory(total=before.memory.total) if before.memory else None,
        agent_version=before.agent_version,
        conditions=conditions(unknown, before.conditions or [], generation, None),
    )


# -- Parts of a status -------------------------------------------------------------------------------------------------


def _health(verdict: Verdict) -> Literal["Healthy", "Unhealthy", "Unknown"]:
    if verdict.healthy:
        return "Healthy"
    return "Unknown" if verdict.reason == GONE.reason else "Unhealthy"


def _memory(seen: Seen) -> DeviceMemory:
    return DeviceMemory(
        total=Memory.of_bytes(seen.view.gpu.memory_bytes),
        used=_bytes(seen.view.memory_used_bytes),
        reserved=_bytes(seen.state.memory_reserved_bytes),
        reserve=_bytes(seen.view.parking.reserve_bytes),
        borrowed=_bytes(sum(borrowed for _, borrowed in _borrowed(seen))),
        returnable=_bytes(sum(borrowed for view, borrowed in _borrowed(seen) if _gives_back(view))),
    )


def _gives_back(slot: SlotView) -> bool:
    return slot.memory_sharing.parks and not slot.parking.state  # else it moves, or has refused to leave


def _borrowed(seen: Seen) -> Iterator[tuple[SlotView, int]]:
    """Yield what each held slot that is sure of some memory has beyond that on the GPU, in bytes."""
    views = {slot.name: slot for slot in seen.view.slots}
    for slot in seen.state.held:
        view = views.get(slot.name)
        if view is not None and view.parking.state != "parked" and slot.memory_request_bytes:
            held = sum(client.record.memory_bytes for client in view.clients)
            yield view, max(0, held - slot.memory_request_bytes)


def _policy(state: GpuState) -> AppliedPolicy:
    page, deciding = state.policy.policy, state.policy.deciding
    conflicting = list(dict.fromkeys(asking.share for asking in state.policy.conflicting))
    return AppliedPolicy(
        name=PolicyName(page.name),
        share=deciding.share if deciding else None,
        conflicting=conflicting[:SLOTS_MAX] or None,
        max_slowdown=Number.of_milli(page.max_slowdown_milli),
        request=Number(page.values()["request"]),
        window=Duration.of(page.window_ns),
    )


def _counts(state: GpuState) -> SlotCounts:
    def count(priority: Priority) -> SlotCount:
        held = sum(slot.priority is priority for slot in state.held)
        return SlotCount(total=state.slots.get(priority, 0), held=held)

    return SlotCounts(hp=count(Priority.HP), be=count(Priority.BE))


def _held(seen: Seen, now: datetime) -> Iterator[SlotRow]:
    views = {slot.name: slot for slot in seen.view.slots}
    for slot in seen.state.held:
        view = views.get(slot.name)
        yield SlotRow(
            name=slot.name,
            priority=slot.priority,
            pod=_reference(slot.holder),
            shared_with=[reference for each in slot.sharing[:SHARING_MAX] if (reference := _reference(each))] or None,
            share=slot.share,
            share_uid=slot.share_uid,
            generation=slot.generation,
            memory_limit=_bytes(slot.memory_limit_bytes) if slot.memory_limit_bytes else None,
            memory_request=_bytes(slot.memory_request_bytes) if slot.memory_request_bytes else None,
            oversubscribe=_oversubscribe(view.memory_sharing) if view else None,
            parked=_parked(view) if view else None,
            park_refused=view.parking.reason[:_SENTENCE_MAX] or None if view else None,
            park_refused_reason=view.parking.problem or None if view else None,
            keeps_room_time=_keeps_room_time(view, now) if view else None,
            compute_request=_part(slot.request_milli),
            compute_limit=_part(slot.limit_milli),
            clients=len(view.clients) if view else 0,
            usage=_usage(view) if view else None,
        )


def _oversubscribe(sharing: MemorySharing) -> Oversubscribe | None:
    if sharing.unified:
        return Oversubscribe.UNIFIED
    return Oversubscribe.PARK if sharing.parks else None


def _parked(view: SlotView) -> Parked | None:
    if view.parking.state != "parked":
        return None
    return Parked(since=_moment(view.parking.began), memory=_bytes(view.parking.held_bytes))


def _keeps_room_time(view: SlotView, now: datetime) -> str | None:
    steps = now.timestamp() // _KEEPS_ROOM_SECONDS
    return _moment(steps * _KEEPS_ROOM_SECONDS) if view.parking.keeps_room else None


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _usage(view: SlotView) -> SlotUsage | None:
    recent = view.usage.recent
    if recent.seconds < _SETTLED_SECONDS:
        return None
    debt_ns = round(view.debt_ns / _DEBT_STEP_NS) * _DEBT_STEP_NS
    return SlotUsage(
        due=_ratio(recent.slot.due),
        charged=_ratio(recent.slot.charged),
        measured=_ratio(recent.slot.measured),
        waited=_ratio(recent.slot.waited),
        debt=Duration.of(debt_ns) if debt_ns else None,
    )


def _part(milli: int) -> Number | None:
    return Number.of_milli(milli) if milli else None


def _rows(seen: Seen) -> Iterator[ClientRow]:
    held = {slot.name: slot for slot in seen.state.held}
    for slot in seen.view.slots:
        for client in slot.clients:
            yield _row(seen, slot, client, held.get(slot.name))


def _row(seen: Seen, slot: SlotView, client: ClientView, held: HolderState | None) -> ClientRow:
    ratios = seen.ratios.get((client.client_index, client.generation), Ratios())
    slowdown = client.record.slowdown_milli
    return ClientRow(
        pod=_reference(process_pods.holder_of(client.process_id, held)) if held else None,
        slot=slot.name,
        priority=Priority(slot.role.name.lower()),
        process_id=client.process_id,
        command=client.command[:16],
        state=client.state[:16],
        memory=_bytes(client.record.memory_bytes),
        busy_ratio=None if ratios.busy is None else _ratio(ratios.busy),
        gated_ratio=None if ratios.gated is None else _ratio(ratios.gated),
        slowdown=Number.of_milli(round(slowdown, -1)) if slowdown else None,
        message="; ".join(each.message for each in client.conditions)[:_SENTENCE_MAX] or None,
    )


def _sort_key(row: ClientRow) -> tuple[bool, bool, float, float, str, int]:
    """Return the sort key of a client: clients with problems first."""
    return (
        row.message is None,
        row.state != _STOPPED,
        -(row.slowdown or 0.0),
        -(row.gated_ratio or 0.0),
        row.slot,
        row.process_id,
    )


def _reference(holder: Holder | None) -> PodReference | None:
    if holder is None:
        return None
    return PodReference(
        namespace=holder.namespace, name=holder.pod, uid=holder.uid or None, container=holder.container or None
    )


def _bytes(amount: int) -> Memory:
    """Return bytes, rounded up to whole MiB: smaller changes are noise."""
    return Memory.of_bytes(-(-amount // _MEMORY_STEP) * _MEMORY_STEP)


def _ratio(value: float) -> Number:
    return Number.of_milli(round(value * 100) * 10)
