"""The conditions of a GPUDevice: each has a status, a reason for programs and a sentence for people."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from orion.crds.conditions import Condition, ConditionType, with_condition
from orion.node_agent.advertising.advertising import Verdict
from orion.node_agent.cluster.reporting.seen import Seen
from orion.node_agent.cluster.state import GpuState, HolderState
from orion.node_agent.gpus.keeper import GONE
from orion.node_agent.sharing.reasons import REQUESTS_SCALED

OVER_RESERVED = "MemoryOverReserved"
_NAMED = 3
_MIB = 1 << 20


class Finding(NamedTuple):
    """The content of a condition; `so`: whether the condition is true, None: unknown."""

    kind: ConditionType
    so: bool | None
    reason: str
    message: str


def conditions(
    findings: Iterable[Finding], before: Sequence[Condition], generation: int | None, now: datetime | None = None
) -> list[Condition]:
    """Return findings as conditions.

    Args:
        findings: all findings; conditions of other types are removed.
        before: the previous conditions; a transition time stays unless the status changes.
        generation: the generation of the object that was read.
        now: the time, for tests.
    """
    found = list(findings)
    result = [each for each in before if each.type in {finding.kind.value for finding in found}]
    for each in found:
        result = with_condition(result, each.kind, each.so, each.reason, each.message, generation, now)
    return result


def findings(seen: Seen, clients: int) -> Iterator[Finding]:
    """Yield all findings about a GPU.

    Args:
        seen: what the agent knows of the GPU.
        clients: how many processes have joined it.
    """
    yield _ready(seen.verdict)
    yield _hook_injected(seen, clients)
    yield _mode_pending(seen)
    yield _policy_conflict(seen.state)
    yield _degraded(seen)
    yield from _parked(seen)


def _ready(verdict: Verdict) -> Finding:
    if verdict.healthy and not verdict.cordoned:
        return Finding(ConditionType.READY, True, "Advertised", "new pods can get slots of the GPU")
    so = None if verdict.reason == GONE.reason else False
    return Finding(ConditionType.READY, so, verdict.reason or "NotAdvertised", verdict.message)


def _hook_injected(seen: Seen, clients: int) -> Finding:
    kind = ConditionType.HOOK_INJECTED
    if seen.unmanaged:
        names = [f"{each.process.process_id} ({each.process.command})" for each in seen.unmanaged[:_NAMED]]
        more = len(seen.unmanaged) - len(names)
        which = ", ".join(names) + (f" and {more} more" if more else "")
        return Finding(kind, False, "Unmanaged", f"processes without the hook, whose GPU time is not limited: {which}")
    if not clients:
        return Finding(kind, None, "NoClients", "no process uses the GPU")
    return Finding(kind, True, "Joined", "every process on the GPU runs with the hook")


def _mode_pending(seen: Seen) -> Finding:
    if seen.mode_pending is None:
        return Finding(ConditionType.MODE_PENDING, False, "InMode", f"the GPU is in mode {seen.mode}")
    return Finding(ConditionType.MODE_PENDING, True, seen.mode_pending.reason, seen.mode_pending.message)


def _policy_conflict(state: GpuState) -> Finding:
    deciding, others = state.policy.deciding, state.policy.conflicting
    if not others or deciding is None:
        return Finding(ConditionType.POLICY_CONFLICT, False, "Agreed", "no two hp pods request different policies")
    names = ", ".join(f"{each.holder.name} (GPUShare {each.share})" for each in others[:_NAMED])
    return Finding(
        ConditionType.POLICY_CONFLICT,
        True,
        "OtherShare",
        f"the GPU uses the policy of GPUShare {deciding.share} of {deciding.holder.name}, the oldest hp pod; these "
        f"request other policies: {names}; give these pods equal policies, or a GPU each",
    )


def _parked(seen: Seen) -> Iterator[Finding]:
    """Yield whether processes have left the GPU's memory, if any slot may."""
    if not any(slot.memory_sharing.parks for slot in seen.view.slots):
        return
    held = {slot.name: slot for slot in seen.state.held}
    parked = [slot for slot in seen.view.slots if slot.parking.state == "parked"]
    if not parked:
        yield Finding(ConditionType.PARKED, False, "NoneParked", "no slot has left the GPU's memory")
        return
    names = ", ".join(_who(held[slot.name]) if slot.name in held else slot.name for slot in parked[:_NAMED])
    more = f" and {len(parked) - _NAMED} more" if len(parked) > _NAMED else ""
    yield Finding(
        ConditionType.PARKED,
        True,
        "SlotsParked",
        f"these have left the GPU's memory, and their programs wait until there is room for them: {names}{more}",
    )


def _degraded(seen: Seen) -> Finding:
    found = [*_over_reserved(seen)]  # first: the condition shows the first finding and the number of the others
    found += [(each.reason, each.message) for each in seen.view.conditions]
    for slot in seen.state.held:
        found += [(each.reason, f"{_who(slot)}: {each.message}") for each in slot.problems]
    held = {slot.name: slot for slot in seen.state.held}
    for view in seen.view.slots:
        for client in view.clients:
            name = _who(held[view.name]) if view.name in held else view.name
            found += [
                (each.reason, f"{name}: process {client.process_id} ({client.command}) {each.message}")
                for each in client.conditions
            ]
    # Scaled requests may last for days, and must not hide what needs attention now.
    found.sort(key=lambda each: each[0] == REQUESTS_SCALED)
    if not found:
        return Finding(ConditionType.DEGRADED, False, "AsPromised", "every pod gets what its grant says")
    more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
    return Finding(ConditionType.DEGRADED, True, found[0][0], f"{found[0][1]}{more}")


def _over_reserved(seen: Seen) -> Iterator[tuple[str, str]]:
    """Yield a finding if pods reserve more memory than the GPU has: the scheduler does not check this."""
    total, reserved = seen.view.gpu.memory_bytes, seen.state.memory_reserved_bytes
    if not 0 < total < reserved:
        return
    asking = sorted(seen.state.held, key=lambda slot: (-slot.memory_request_bytes, slot.name))
    asking = [slot for slot in asking if slot.memory_request_bytes]
    names = ", ".join(f"{_who(slot)} {mib(slot.memory_request_bytes)}" for slot in asking[:_NAMED])
    more = f" and {len(asking) - _NAMED} more" if len(asking) > _NAMED else ""
    yield (
        OVER_RESERVED,
        f"its pods reserve {mib(reserved)} of {mib(total)}, {mib(reserved - total)} more than it has, so an "
        "allocation within a pod's limit may fail; let their GPUShares ask for less (spec.memory), or delete a pod "
        f"so that it can start on another GPU: {names}{more}",
    )


def mib(amount: int) -> str:
    """Return a number of bytes in MiB, rounded up, for messages."""
    return f"{-(-amount // _MIB)} MiB"


def _who(slot: HolderState) -> str:
    return f"pod {slot.holder.name}" if slot.holder else slot.name
