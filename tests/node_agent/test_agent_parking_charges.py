"""What the driver itself holds for a tenant counts when it leaves, while it is away and when it is back."""

import os
import time

from orion.hook.layout import GrantPage, ParkingState
from orion.node_agent.clients.client import YOUNG_NS
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.fake_card import MIB, Tenant
from tests.node_agent.parking_cards import Cards
from tests.node_agent.protocol_client import ProtocolClient

SAYS, HOLDS = 5000, 6000
""" What the hook counts, and what the process holds with its context, in MiB. """


def wish(cards: Cards, away: bool) -> None:
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=away)


def leaves(cards: Cards, tenant: Tenant) -> None:
    eventually(lambda: tenant.park % 2 == 1)
    tenant.answer(ParkingState.LEAVING)
    cards.card.lists(os.getpid(), 0)
    assert cards.card.hold(tenant, 0)
    tenant.answer(ParkingState.PARKED)
    eventually(cards.is_in("be-0", "parked"))


def holds_with_its_context(cards: Cards) -> Tenant:
    tenant = cards.be("be-0", SAYS)
    assert cards.card.hold(tenant, HOLDS)
    cards.card.lists(os.getpid(), HOLDS)
    eventually(lambda: shown(cards, "be-0") == HOLDS)
    return tenant


def shown(cards: Cards, slot: str) -> int:
    """Return what the agent shows that a slot's processes hold, in MiB."""
    return sum(each.memory_bytes for each in cards.slot(slot).clients) // MIB


def test_a_tenant_that_leaves_soon_again_is_let_back_only_into_room_for_its_context_too(cards: Cards) -> None:
    tenant = holds_with_its_context(cards)
    with ProtocolClient(cards.agent.slot("be-1")).join():  # of the same process, so that the driver's answers show
        young_until = time.monotonic() + YOUNG_NS / 1e9
        eventually(lambda: time.monotonic() > young_until, "both have made their contexts, as the agent sees it")
        assert shown(cards, "be-1") == HOLDS
        wish(cards, away=True)
        leaves(cards, tenant)
        eventually(lambda: shown(cards, "be-1") == 0, "the driver has said twice that the process holds nothing")
    assert shown(cards, "be-0") == HOLDS
    wish(cards, away=False)
    eventually(lambda: tenant.park % 2 == 0)
    tenant.answer(ParkingState.RETURNING)
    assert cards.card.hold(tenant, HOLDS)
    cards.card.lists(os.getpid(), HOLDS)
    tenant.answer(ParkingState.RUNNING)
    eventually(cards.is_in("be-0", ""))
    wish(cards, away=True)
    leaves(cards, tenant)
    assert cards.parking("be-0").bytes == HOLDS * MIB


def test_the_next_agent_lets_a_tenant_back_only_into_room_for_its_context_too(cards: Cards) -> None:
    tenant = holds_with_its_context(cards)
    wish(cards, away=True)
    leaves(cards, tenant)
    cards.restart()
    eventually(cards.is_in("be-0", "parked"))
    assert cards.parking("be-0").bytes == HOLDS * MIB
    assert shown(cards, "be-0") == HOLDS


def test_hp_counts_on_no_room_that_a_tenant_only_says_to_hold(cards: Cards) -> None:
    hp, liar = cards.hp(), cards.be("be-0", 0)
    cards.card.lists(os.getpid(), 300)
    liar.says(8000)
    eventually(lambda: shown(cards, "be-0") == 8000)
    eventually(lambda: hp.grant.get(GrantPage, "leaving_mib") == 300, "the driver lists no more")
