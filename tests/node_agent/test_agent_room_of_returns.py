"""While a tenant comes back, the agent tells the other clients, which ask before they take memory."""

from orion.hook import layout
from orion.hook.join import CreditAnswer
from orion.hook.layout import ParkingState
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB, Tenant, ask_for_room, wait_for_room
from tests.node_agent.parking_cards import GIB, Cards
from tests.node_agent.protocol_client import ProtocolClient


def returning_mib(client: ProtocolClient) -> int:
    return client.grant.get(layout.GrantPage, "returning_mib")


def that_returns(cards: Cards) -> Tenant:
    """Return a tenant of 5000 MiB that has been let back, and has not taken its room yet."""
    tenant = cards.be("be-0", 5000).obey()
    tenant.stops_before = ParkingState.RUNNING
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
        administrator.park_slot(GPU, "be-0", away=False)
    tenant.reaches(ParkingState.RETURNING)
    return tenant


def test_a_tenant_that_parks_gets_what_fits_beside_a_return_and_else_waits_for_its_turn(cards: Cards) -> None:
    other = cards.be("be-1", 100)
    tenant = that_returns(cards)
    assert returning_mib(other) == 5000
    assert wait_for_room(other, 200 * MIB) is CreditAnswer.YES
    other.says(300)
    assert ask_for_room(other, 4000 * MIB) is CreditAnswer.LATER
    eventually(lambda: other.park % 2 == 1, "it leaves, and comes back with room for it")
    tenant.stops_before = None
    tenant.reaches(ParkingState.RUNNING)


def test_a_slot_that_does_not_park_gets_what_it_is_sure_of_or_fits_and_else_waits_for_the_end_of_a_return(
    cards: Cards,
) -> None:
    other = cards.be("be-1", 100)
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-1", memory_parks=False, memory_request_bytes=GIB)
    tenant = that_returns(cards)
    assert returning_mib(other) == 5000
    other.says(600)
    assert ask_for_room(other, 500 * MIB) is CreditAnswer.YES
    other.says(1100)
    assert ask_for_room(other, 500 * MIB) is CreditAnswer.YES
    other.says(4100)
    assert ask_for_room(other, 4000 * MIB) is CreditAnswer.LATER
    tenant.stops_before = None
    tenant.reaches(ParkingState.RUNNING)
    wait_for_room(other, 4000 * MIB)
    eventually(lambda: returning_mib(other) == 0)


def test_room_beside_a_return_is_given_once_to_a_slot_that_does_not_park(cards: Cards) -> None:
    """Else it would take, bit by bit, the room of the tenant that comes back, whose program would be lost."""
    other, held = cards.be("be-1", 100), 100
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-1", memory_parks=False)
    tenant = that_returns(cards)
    for _ in range(30):
        other.says(held + 500)
        is_given = ask_for_room(other, 500 * MIB) is CreditAnswer.YES
        held += 500 if is_given and cards.card.hold(other, held + 500) else 0
        other.says(held)
    assert 600 <= held <= 8192 - 5000
    tenant.stops_before = None
    tenant.reaches(ParkingState.RUNNING)


def test_hp_that_does_not_wait_is_not_concerned(cards: Cards) -> None:
    hp = cards.hp(wait_ms=0)
    tenant = that_returns(cards)
    assert returning_mib(tenant) == 5000
    assert returning_mib(hp) == 0
