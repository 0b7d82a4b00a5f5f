"""Converts snapshots into the messages of `api/agent.proto`."""

import os
import time
from collections.abc import Iterable
from importlib import metadata

from orion.hook import layout
from orion.node_agent import snapshots
from orion.node_agent.advertising.advertising import AdvertisedDevices, AdvertisedGpu
from orion.node_agent.api import agent_pb2
from orion.node_agent.gpus.interface import Kind
from orion.node_agent.pages.policy_words import Policy
from orion.node_agent.resource_files.reading import FileRules
from orion.node_agent.sharing.conditions import Condition
from orion.node_agent.sharing.usage import Parts
from orion.node_agent.slots.claim import Claim

_U32 = 2**32 - 1


def version() -> str:
    """Return the version of this distribution; "unknown" in a checkout that is not installed."""
    try:
        return metadata.version("orion-gpu")
    except metadata.PackageNotFoundError:
        return "unknown"


def snapshot(view: snapshots.AgentView) -> agent_pb2.Snapshot:
    """Return a snapshot of the agent as a message."""
    return agent_pb2.Snapshot(
        agent_version=version(),
        agent_process_id=os.getpid(),
        gpus=[gpu(each) for each in view.gpus],
        taken_seconds=view.taken_ns / 1e9,
    )


def gpu(view: snapshots.GpuView) -> agent_pb2.Gpu:
    """Return a GPU as a message."""
    return agent_pb2.Gpu(
        uuid=view.gpu.uuid,
        index=view.gpu.index,
        model=view.gpu.model,
        simulated=view.gpu.simulated,
        memory_bytes=view.gpu.memory_bytes,
        policy=view.policy.name,
        window_us=view.policy.window_ns // 1000,
        hp_busy_ratio=view.hp_busy_ratio,
        slots=[slot(each) for each in view.slots],
        memory_used_bytes=view.memory_used_bytes,
        settings=_policy(view.policy),
        conditions=_conditions(view.conditions),
        memory_reserve_bytes=view.parking.reserve_bytes,
        parkings=view.parking.counts,
    )


def slot(view: snapshots.SlotView) -> agent_pb2.Slot:
    """Return a slot as a message."""
    return agent_pb2.Slot(
        gpu=view.gpu,
        name=view.name,
        role=agent_pb2.HP if view.role is layout.Role.HP else agent_pb2.BE,
        directory=view.directory,
        memory_limit_bytes=view.grant.memory_limit_bytes,
        window_share_us=view.grant.window_share_ns // 1000,
        clients=[_client(client) for client in view.clients],
        held=view.plan is not None and not view.plan.has_turn(time.monotonic_ns()),
        profile_kernels=view.profile_kernels,
        learnt_kernels=view.learnt_kernels,
        request=view.grant.request_milli / 1_000,
        limit=view.grant.limit_milli / 1_000,
        usage=_usage(view),
        reasons=[agent_pb2.Reason(reason=each.reason, message=each.message) for each in view.reasons],
        rule=view.rule,
        claim=_claim(view.claim),
        memory_request_bytes=view.memory_sharing.request_bytes,
        memory_parks=view.memory_sharing.parks,
        memory_unified=view.memory_sharing.unified,
        memory_wait_ms=view.memory_sharing.wait_ms,
        parking=agent_pb2.Parking(
            state=view.parking.state,
            seconds=view.parking_seconds,
            bytes=view.parking.held_bytes,
            reason=view.parking.reason,
            wished=view.parking.is_wished_away,
            total_seconds=view.parking.total_seconds,
            keeps_room=view.parking.keeps_room,
        ),
        owner_process_ids=view.owner_process_ids,
    )


def _claim(claim: Claim | None) -> agent_pb2.ClaimOfSlot | None:
    if claim is None:
        return None
    return agent_pb2.ClaimOfSlot(
        uid=claim.uid,
        share=claim.share,
        namespace=claim.namespace,
        name=claim.name,
        pods=[agent_pb2.PodOfClaim(name=pod.name, uid=pod.uid) for pod in claim.pods],
        memory_bytes=claim.memory_bytes,
        time_milli=claim.time_milli,
    )


def rules(uuid: str, found: FileRules) -> agent_pb2.GpuRules:
    """Return a GPU's rules as a message."""
    return agent_pb2.GpuRules(
        gpu=uuid,
        file=str(found.file),
        rules=[
            agent_pb2.Rule(
                id=rule.id,
                line=rule.line,
                request=rule.request_milli / 1_000,
                limit=rule.limit_milli / 1_000,
                memory_limit_bytes=rule.memory_limit_bytes,
            )
            for rule in found.rules.values()
        ],
        remarks=found.remarks,
        faulty=bool(found.fault),
    )


def _usage(view: snapshots.SlotView) -> agent_pb2.Usage:
    totals = view.usage.totals
    return agent_pb2.Usage(
        due_seconds=totals.due / 1e9,
        charged_seconds=totals.charged / 1e9,
        measured_seconds=totals.measured / 1e9,
        waited_seconds=totals.waited / 1e9,
        debt_seconds=view.debt_ns / 1e9,
        second=_parts(view.usage.second),
        recent=_parts(view.usage.recent),
    )


def _parts(parts: Parts) -> agent_pb2.UsageParts:
    slot = parts.slot
    return agent_pb2.UsageParts(
        seconds=parts.seconds,
        due=slot.due,
        charged=slot.charged,
        measured=slot.measured,
        waited=slot.waited,
        wanted=slot.wanted,
        shut=slot.shut,
        hp=parts.hp,
        turns=parts.turns,
    )


def devices(advertised: AdvertisedDevices) -> agent_pb2.Devices:
    """Return the list for a device plugin as a message."""
    return agent_pb2.Devices(
        devices=[_device(each) for each in advertised.gpus],
        not_advertised=[
            agent_pb2.NotAdvertised(uuid=each.uuid, reason=each.reason, message=each.message)
            for each in advertised.not_advertised
        ],
        giver=advertised.giver,
        handover=advertised.handover,
        other_users=[agent_pb2.UsersOfClaim(claim_uid=uid, pods=pods) for uid, pods in advertised.other_users],
    )


def _device(advertised: AdvertisedGpu) -> agent_pb2.Device:
    gpu, verdict = advertised.gpu, advertised.verdict
    kind = gpu.kind or Kind()
    return agent_pb2.Device(
        uuid=gpu.uuid,
        index=gpu.index,
        model=gpu.model,
        simulated=gpu.simulated,
        memory_bytes=gpu.memory_bytes,
        memory_reserved_bytes=advertised.memory_reserved_bytes,
        hp_busy_ratio=advertised.hp_busy_ratio,
        slots=advertised.slots,
        held=advertised.held,
        healthy=verdict.healthy,
        cordoned=verdict.cordoned,
        reason=verdict.reason,
        message=verdict.message,
        numa_node=gpu.numa_node,
        linked=gpu.linked,
        minor=gpu.minor,
        closed=advertised.closed,
        fail_closed=[uid for uid, is_closed in advertised.fail_closed if is_closed],
        fail_open=[uid for uid, is_closed in advertised.fail_closed if not is_closed],
        mode=advertised.mode,
        compute_capability=kind.compute_capability,
        driver_version=kind.driver_version,
        pci_bus_id=kind.pci_bus_id,
        pcie_root=kind.pcie_root,
    )


def _client(view: snapshots.ClientView) -> agent_pb2.Client:
    record = view.record
    return agent_pb2.Client(
        place=view.client_index,
        generation=view.generation,
        process_id=min(max(view.process_id, 0), _U32),
        command=view.command,
        state=view.state,
        launches=record.launches,
        gated_launches=record.gated_launches,
        gated_seconds=view.gated_ns / 1e9,
        busy_seconds=view.busy_ns / 1e9,
        linger_us=record.linger_ns // 1000,
        in_flight_us=record.in_flight_ns // 1000,
        memory_bytes=record.memory_bytes,
        condition="; ".join(condition.message for condition in view.conditions),
        joined_seconds_ago=view.joined_seconds_ago,
        gpu_seconds=record.gpu_ns / 1e9,
        overlapped_launches=record.overlapped_launches,
        overlapped_seconds=record.overlapped_ns / 1e9,
        partitioned_launches=record.partitioned_launches,
        slowdown=record.slowdown_milli / 1_000,
        overlap_us=record.overlap_ns // 1_000,
        control_periods=record.control_periods,
        shares_context=record.shares_context == 1,
        long_kernel=record.long_kernel_name,
        long_kernel_seconds=record.long_kernel_ns / 1e9,
        conditions=_conditions(view.conditions),
        counted_seconds=view.counted_ns / 1e9,
    )


def _policy(policy: Policy) -> agent_pb2.Policy:
    return agent_pb2.Policy(policy=policy.name, fields=policy.values())


def _conditions(conditions: Iterable[Condition]) -> list[agent_pb2.Condition]:
    return [agent_pb2.Condition(reason=each.reason, message=each.message, since=each.since) for each in conditions]
