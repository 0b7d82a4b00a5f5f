"""Writes what people and other parts of the agent see of parking: into slots, clients and GPUs."""

import time
from collections.abc import Collection, Iterable, Mapping

from orion.hook import layout
from orion.node_agent.clients.client import listed_held_mib
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.parking.answers import Verdict
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.member import Member
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.view import Place
from orion.node_agent.slots.parking_state import SlotParking

_STATES = {Place.HERE: "", Place.LEAVING: "leaving", Place.AWAY: "parked", Place.RETURNING: "returning"}
_WITHOUT_TURNS = frozenset({Verdict.PARKED, Verdict.RETURNING, Verdict.ASLEEP})


def show(now: float, cards: Mapping[str, GpuRoom], tenants: Collection[Present], gpus: Iterable[SharedGpu]) -> None:
    """Write the state of all GPUs and tenants.

    Args:
        now: in seconds.
        cards: by GPU.
        tenants: those that have processes.
        gpus: all GPUs.
    """
    shown = set()
    for present in tenants:
        for member in present.members:
            _show(now, present, member)
            shown.add(member.slot)
    for shared_gpu in gpus:
        room = cards.get(shared_gpu.gpu.uuid)
        shared_gpu.parking = shared_gpu.parking.at_rest() if room is None else room.shown()
        slots = shared_gpu.slots.values()
        waits = room is not None and any(slot.grant.memory_wait_ns for slot in slots)
        leaving = _leaving_mib(now, shared_gpu, tenants) if waits else 0
        for slot in slots:
            gets_all = (
                slot.role is layout.Role.HP or 0 < slot.grant.memory_limit_bytes <= slot.memory_sharing.request_bytes
            )
            slot.page.set_leaving(leaving if slot.grant.memory_wait_ns and gets_all else 0)
            if slot not in shown and slot.parking.state:
                slot.parking.clear()


def show_end(now: float, gpus: Collection[SharedGpu]) -> None:
    """Write that nobody parks any more: all clients are on their GPUs, and none has a problem with that."""
    show(now, {}, (), gpus)
    for shared_gpu in gpus:
        for client in shared_gpu.clients.values():
            client.is_parked, client.park_problem = False, None


def _leaving_mib(now: float, shared_gpu: SharedGpu, tenants: Iterable[Present]) -> int:
    """Return what tenants hold of a GPU that would leave for hp, or do so now, in MiB.

    Nobody can free what only its process says that it holds. A driver that lists none of all clients does not say.
    """
    places, uuid = (Place.HERE, Place.LEAVING), shared_gpu.gpu.uuid
    leave = (each for each in tenants if each.parks and each.clients and not each.known.is_refusing(now))
    here = [each for each in leave if each.known.place in places]
    if not any(client.listed_mib for client in shared_gpu.clients.values()):
        return sum(each.by_gpu().get(uuid, 0) for each in here) >> 20
    return sum(min(each.by_gpu().get(uuid, 0) >> 20, _listed_mib(uuid, each)) for each in here)


def _listed_mib(uuid: str, present: Present) -> int:
    return sum(listed_held_mib(each) for each in present.clients if each.slot.gpu == uuid)


def _show(now: float, present: Present, member: Member) -> None:
    known, parking = present.known, member.slot.parking
    problems = [known.problems[each] for each in member.clients if each in known.problems]
    state = _STATES[known.place]
    if problems and known.place is Place.HERE:
        state = "lost" if problems[0][0] == "ParkLost" else "refused"
    if state != parking.state:
        parking.state, parking.since_ns = state, round(known.since * 1e9)
        parking.began = time.time() - (now - known.since)
    parking.problem, parking.reason = problems[0] if problems else ("", "")
    parking.keeps_room = known.keeps_room
    parking.held_bytes = present.by_gpu().get(member.slot.gpu, 0) if known.place is Place.AWAY else 0
    parking.away_seconds, parking.total_seconds = known.away_seconds, known.away_total
    is_stuck = known.is_stuck and known.place is Place.AWAY
    for client in member.clients:
        client.is_parked = present.verdicts.get(client) in _WITHOUT_TURNS
        client.park_problem = known.problems.get(client, ("NoRoomToReturn", _no_room(parking)) if is_stuck else None)


def _no_room(parking: SlotParking) -> str:
    return (
        f"cannot come back to the GPU's memory: it left {parking.held_bytes / (1 << 30):.2f} GiB, and programs that do "
        "not leave hold too much of the GPU: end them (nvidia-smi shows them), or restart it"
    )
