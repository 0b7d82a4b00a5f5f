"""What is known of a tenant: what it may hold, and where its memory is by what the driver has said."""

from types import SimpleNamespace
from typing import Any

import pytest

from orion.hook import layout
from orion.node_agent.pages.parking_words import ParkingAnswer
from orion.node_agent.parking.answers import Verdict
from orion.node_agent.parking.gpu_room import GpuRoom
from orion.node_agent.parking.known import PEAK_SECONDS, YOUNG_SECONDS, Known
from orion.node_agent.parking.member import Member
from orion.node_agent.parking.present import Present
from orion.node_agent.parking.tenants import Tenants
from orion.node_agent.parking.view import Place
from orion.node_agent.parking.wishes import Wish
from orion.node_agent.settings import AgentSettings
from orion.node_agent.slots.memory_sharing import MemorySharing
from orion.node_agent.slots.parking_state import GpuParking, SlotParking
from tests.node_agent.parking_stubs import Stub

GIB, GPU = 1 << 30, "GPU-1"


def present(limit: int, held_mib: int, listed_mib: int = 0) -> Present:
    gpu: Any = SimpleNamespace(gpu=SimpleNamespace(memory_bytes=8 * GIB))
    slot: Any = SimpleNamespace(
        gpu=GPU, grant=SimpleNamespace(memory_limit_bytes=limit), memory_sharing=MemorySharing(), parking=SlotParking()
    )
    client: Any = Stub(
        record=SimpleNamespace(memory_mib=held_mib),
        uncounted_mib=0,
        awaits_driver=False,
        listed_mib=listed_mib,
        before_lowering=(0, 0),
        left_mib=None,
        process_id=1,
    )
    return Present("pod a/b", Known(0, here_seconds=YOUNG_SECONDS), [Member(gpu, slot, (client,), False)])


def test_a_lie_of_once_keeps_no_room_for_ever() -> None:
    liar = present(GIB, 2**40)
    liar.note(1.0)
    assert liar.wants() == {GPU: GIB}
    without_limit = present(0, 2**40)
    without_limit.note(1.0)
    assert without_limit.wants() == {GPU: 8 * GIB}


@pytest.mark.parametrize(
    ("limit", "says_mib", "listed_mib", "holds_mib"),
    [
        (2 * GIB, 1024, 0, 1024),
        (2 * GIB, 2**40, 0, 2048),
        (2 * GIB, 2**40, 3072, 3072),
        (2 * GIB, 2**40, 2**40, 8192),
        (GIB, 3072, 3072, 3072),
        (GIB, 3072, 4096, 3072),
        (0, 2**40, 0, 8192),
    ],
)
def test_what_a_client_says_beyond_its_limit_counts_as_far_as_the_driver_lists_it(
    limit: int, says_mib: int, listed_mib: int, holds_mib: int
) -> None:
    tenant = present(limit, says_mib, listed_mib)
    assert tenant.by_gpu() == {GPU: holds_mib << 20}
    tenant.known.place = Place.AWAY
    assert tenant.by_gpu() == {GPU: holds_mib << 20}


def test_nobody_is_asked_to_leave_before_the_agent_knows_what_that_moves() -> None:
    tenant = present(GIB, 3072)
    assert tenant.seen(0.0, 1.0, {}).refused_until == float("-inf")
    tenant.clients[0].awaits_driver = True  # the agent was restarted
    assert tenant.seen(0.0, 1.0, {}).refused_until == float("inf")


def test_what_a_tenant_lacks_counts_up_to_its_limit() -> None:
    tenant = present(2 * GIB, 512)
    tenant.note_lacks(dict.fromkeys(tenant.clients, Wish(3 * GIB, 0, 0.0, 0.0)))
    assert tenant.by_gpu() == tenant.known.lacks == {GPU: 2 * GIB}


def test_what_a_tenant_lacks_beyond_its_limit_is_what_it_is_answered_by() -> None:
    """Else it would not leave where there is room for its limit, and would not get that, because it has failed once."""
    tenant = present(2 * GIB, 512)
    tenant.note_lacks(dict.fromkeys(tenant.clients, Wish(2 * GIB, 0, 0.0, 0.0, more=GIB // 4)))
    assert tenant.known.lacks == {GPU: 2 * GIB + GIB // 4}


def test_what_a_tenant_once_held_does_not_count_for_ever() -> None:
    tenant, now = present(4 * GIB, 3072), 0.0
    client: Any = tenant.clients[0]

    def here(seconds: float) -> dict[str, int]:
        nonlocal now
        for _ in range(round(seconds / 5)):
            now += 5
            tenant.note(now)
        return tenant.wants()

    assert here(5) == {GPU: 3 * GIB}
    client.record.memory_mib = 1024
    assert here(PEAK_SECONDS - 10) == {GPU: 3 * GIB}
    tenant.known.move(Place.LEAVING, now)
    assert here(3 * PEAK_SECONDS) == {GPU: 3 * GIB}, "while it is away nothing is forgotten"
    tenant.known.move(Place.HERE, now)
    assert here(2 * PEAK_SECONDS) == {GPU: GIB}
    client.record.memory_mib = 2048
    assert here(5) == {GPU: 2 * GIB}


def test_who_is_away_counts_with_what_it_held_though_its_limit_is_lowered() -> None:
    tenant = present(GIB, 512)
    tenant.slots[0].parking.left_bytes = 3 * GIB
    assert tenant.by_gpu() == {GPU: GIB // 2}
    for place in (Place.LEAVING, Place.AWAY, Place.RETURNING):
        tenant.known.place = place
        assert tenant.by_gpu() == {GPU: 3 * GIB}


def test_what_did_not_leave_is_not_counted_again_when_the_others_come_back() -> None:
    tenant, other = present(0, 1024), present(0, 2048)
    (member,) = tenant.members
    tenant.members[0] = member._replace(clients=(*member.clients, *other.members[0].clients))
    gone, stays = tenant.clients
    tenant.note(1.0)
    member.slot.parking.left_bytes, gone.left_mib, stays.left_mib = 3 * GIB, 1024, 2048
    tenant.verdicts = {gone: Verdict.PARKED, stays: Verdict.REFUSED}
    tenant.known.place, tenant.known.is_half = Place.AWAY, True
    seen = tenant.seen(1.0, 1.0, {})
    assert (seen.held[GPU], seen.wants[GPU]) == (GIB, GIB)
    for says_mib in (1024, 4096, 2**40):
        stays.record.memory_mib = says_mib  # type: ignore[misc]
        assert tenant.by_gpu() == {GPU: GIB}
    gone.left_mib = None
    assert tenant.by_gpu() == {GPU: 3 * GIB}, "an agent of an earlier version knew what each of them held"


def test_a_change_with_next_to_nothing_does_not_say_how_long_one_with_all_its_memory_takes() -> None:
    known = Known(0)
    usual = known.change_seconds(4 * GIB)
    known.moves_bytes = 300 << 20
    for place, now in ((Place.LEAVING, 0.0), (Place.AWAY, 0.25), (Place.RETURNING, 0.25), (Place.HERE, 0.5)):
        known.move(place, now)
    assert known.change_seconds(300 << 20) == 0.25 + 0.5, "both since it was asked, at 0 s"
    assert known.change_seconds(4 * GIB) == usual
    assert known.leaving_seconds(4 * GIB) == Known(0).leaving_seconds(4 * GIB)


def test_a_change_is_looked_at_before_it_has_taken_as_long_as_the_last_one() -> None:
    known = Known(0, moves_bytes=GIB)
    for begins, ends, now, seconds in (
        (Place.LEAVING, Place.AWAY, 0.0, 1.0),
        (Place.RETURNING, Place.HERE, 2.0, 0.5),
    ):
        known.move(begins, now)
        known.asked = now
        assert known.done_at == now, "nobody knows how long it takes"
        known.move(ends, now + seconds)
    known.move(Place.LEAVING, 9.0)
    known.asked = 9.0
    assert 9.5 <= known.done_at < 10.0
    known.move(Place.AWAY, 10.0)
    known.move(Place.RETURNING, 20.0)
    known.asked = 20.0
    assert 20.0 <= known.done_at < 20.5


def test_a_tenant_that_dawdles_earns_no_longer_stay() -> None:
    known = Known(0, moves_bytes=GIB)
    for place, now in ((Place.LEAVING, 0.0), (Place.AWAY, 60.0), (Place.RETURNING, 60.0), (Place.HERE, 120.0)):
        known.move(place, now)
    assert known.change_seconds(GIB) == 3.0 + 3.0
    assert known.take_happened() == [("left", 60.0), ("returned", 120.0)]


def test_who_has_left_beside_a_silent_process_may_come_back() -> None:
    tenant = present(GIB, 512)
    tenant.known.place = Place.AWAY
    client: Any = object()
    tenant.known.silent = {client: ()}
    assert tenant.known.stays_away(1.0), "nobody answers"
    tenant.known.is_half = True
    assert not tenant.known.stays_away(1.0)


def test_a_listing_of_before_it_left_does_not_make_a_tenant_a_liar() -> None:
    tenant = present(GIB, 512)
    client: Any = tenant.clients[0]
    listed = {GPU: {1: GIB}}
    client.stays, client.returned, client.joined_ns = False, False, 0
    client.record.parking = ParkingAnswer(1, 0, layout.ParkingReason.NONE, layout.ParkingState.PARKED)
    tenant.slots[0].memory_sharing = MemorySharing(parks=True)
    tenant.slots[0].parking.ask(True)

    def does(now: float, answered: float) -> Verdict:
        tenant.look(now, listed, answered, AgentSettings())
        return tenant.verdicts[client]

    assert does(10.0, 9.0) is Verdict.PARKED
    assert does(13.0, 11.9) is Verdict.PARKED, "the driver was asked too early"
    assert does(13.0, 12.1) is Verdict.LIES


@pytest.mark.parametrize(("moves", "then"), [(Place.LEAVING, Place.AWAY), (Place.RETURNING, Place.HERE)])
def test_an_answer_of_before_a_move_says_nothing(moves: Place, then: Place) -> None:
    tenant = present(GIB, 512)
    tenant.known.move(moves, 1.0)
    assert not tenant.moved_since(0.5), "what moves is known to move"
    tenant.known.move(then, 2.0)
    assert tenant.moved_since(1.9)
    assert not tenant.moved_since(2.1)


def test_what_is_restored_is_what_no_process_is_listed_for() -> None:
    gpu: Any = SimpleNamespace(
        gpu=SimpleNamespace(uuid=GPU, memory_bytes=8 * GIB), living_hp={}, slots={}, parking=GpuParking(),
        clients={}, awaited={},
    )  # fmt: skip
    room, tenant = GpuRoom(gpu, AgentSettings()), present(4 * GIB, 3072)

    def restored(
        place: Place, free_gib: float, listed: dict[int, int | None] | None, before_gib: float | None = None
    ) -> int:
        tenant.known.place = place
        before = None if before_gib is None else round(before_gib * GIB)
        room.answered(round(free_gib * GIB), listed, 1.0, before)
        room.look(1.0, [tenant])
        return room.seen(1.0, [tenant]).restored

    assert restored(Place.AWAY, 5, {7: 2 * GIB}) == 0, "1 GiB is the driver's own"
    assert restored(Place.RETURNING, 5, {7: 2 * GIB}) == 0
    assert restored(Place.RETURNING, 2, {7: 2 * GIB}) == 3 * GIB
    assert restored(Place.RETURNING, 1, {7: 3 * GIB}) == 3 * GIB, "hp's growth is listed"
    assert restored(Place.RETURNING, 1, {7: 3 * GIB, 1: 3 * GIB}) == 0
    assert restored(Place.RETURNING, 2, {}) == 0, "a driver that lists nobody does not say"
    assert restored(Place.RETURNING, 2, {7: None}) == 0
    assert restored(Place.HERE, 1, {7: 3 * GIB, 1: 3 * GIB}) == 0
    assert restored(Place.AWAY, 5, {7: 2 * GIB, 9: 2 * GIB}, before_gib=3) == 0, "9 ends while it is listed"
    assert restored(Place.RETURNING, 5, {7: 2 * GIB}) == 0, "1 GiB is still the driver's own"


def test_the_reserve_learns_nothing_from_an_allocation_that_the_driver_refuses() -> None:
    hp: Any = type("Hp", (), {"record": SimpleNamespace(memory_mib=1024), "uncounted_mib": 0})()
    slot: Any = SimpleNamespace(role=layout.Role.HP, job="", grant=SimpleNamespace(memory_limit_bytes=0))
    gpu: Any = SimpleNamespace(
        gpu=SimpleNamespace(uuid=GPU, memory_bytes=80 * GIB), living_hp={0: hp}, slots={"hp-0": slot}, clients={},
        of_slot=lambda _: [hp], parking=GpuParking(), awaited={},
    )  # fmt: skip
    room = GpuRoom(gpu, AgentSettings(parking_reserve_mib=512))

    def reserve(now: float, held_gib: int) -> int:
        hp.record.memory_mib = held_gib << 10
        room.look(now, [])
        return room.reserve

    assert [reserve(1.0, 1), reserve(1.05, 1024), reserve(1.1, 1)] == [512 << 20] * 3, "the driver refuses it"
    assert reserve(1.15, 31) == 512 << 20
    assert reserve(1.2, 31) == round(30 * GIB * 1.25), "it has taken that"


@pytest.mark.parametrize(("returned", "is_new"), [(False, True), (True, False)])
def test_a_tenant_of_the_previous_agent_counts_with_what_it_holds_as_one_that_has_run_for_long(
    returned: bool, is_new: bool
) -> None:
    clients: dict[int, Any] = {}
    gpu: Any = SimpleNamespace(
        gpu=SimpleNamespace(uuid=GPU, memory_bytes=8 * GIB), slots={}, clients=clients, awaited={}
    )
    (member,) = present(6 * GIB, 1024).members
    slot, client = member.slot, member.clients[0]
    gpu.slots["be-0"], clients[0] = slot, client
    slot.name, slot.job, slot.role, slot.grant.request_milli = "be-0", "", layout.Role.BE, 0  # type: ignore[misc]
    client.slot, client.ready, client.role, client.returned = slot, True, layout.Role.BE, returned  # type: ignore[misc]
    tenants = Tenants()
    tenants.group(100.0, [gpu])
    (tenant,) = tenants.present.values()
    tenant.note(100.0)
    seen = tenant.seen(100.0, 1.0, {})
    assert (seen.is_new, seen.needs(GPU)) == (is_new, 6 * GIB if is_new else GIB)
