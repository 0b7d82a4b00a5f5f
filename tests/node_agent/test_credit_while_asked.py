"""The driver's answer is of some moment since the question, and clients allocate and free meanwhile."""

import os

import pytest

from orion.hook import layout
from orion.node_agent.pages.client_pages import RecordPage
from tests.node_agent.credit_slots import LIMIT, MIB, Slots, says


def test_an_allocation_while_the_driver_is_asked_is_not_charged_twice() -> None:
    slots = Slots()
    client = slots.join(100)
    says(slots, 100)
    slots.credit.asks()
    client.record.held = [300]
    slots.credit.answered({os.getpid(): 300 * MIB})
    assert slots.used() == 300
    slots.credit.asks()
    client.record.held = [100]
    slots.credit.answered({os.getpid(): 300 * MIB})
    assert slots.used() == 100
    client.record.held = [0, 0, 0]  # the first answer of two that says more
    slots.credit.asks()
    slots.credit.answered({os.getpid(): 50 * MIB})
    assert slots.used() == 0


@pytest.mark.parametrize("listed", [130, 230, 330])
def test_what_a_client_allocates_and_frees_while_the_driver_is_asked_is_not_its_context(listed: int) -> None:
    slots = Slots()
    client = slots.join(200)
    says(slots, 230)
    client.record.meanwhile = 100, 300
    for _ in range(3):
        says(slots, listed)
        assert (client.uncounted_mib, slots.credit_of(client)) == (30, LIMIT - 30)


def test_a_pool_that_has_given_back_what_its_client_still_counts_does_not_hide_the_context() -> None:
    slots = Slots()
    client = slots.join(200)
    says(slots, 230)
    client.record.held, client.record.meanwhile = [300], (0,)  # as of a client with pools
    for listed in (330, 230, 230, 330):
        says(slots, listed)
        assert client.uncounted_mib == 30
    assert slots.join(0).uncounted_mib == 30, "nor from others what contexts take"
    slots.clients = {0: client}
    client.record.held = [0]
    for _ in range(2):
        says(slots, 0)
    assert client.uncounted_mib == 0


@pytest.mark.parametrize(
    ("said", "since"),
    [
        ({"memory_least": 7 << 32 | 1, "memory_most": 7 << 32 | 3}, (1, 3)),
        ({"memory_least": 6 << 32 | 1, "memory_most": 6 << 32 | 3}, (2, 2)),
        ({"memory_least": 7 << 32 | 1, "memory_most": 6 << 32 | 3}, (2, 2)),
        ({"memory_least": 7 << 32 | 4, "memory_most": 7 << 32 | 1}, (2, 2)),
        ({"has_pools": 1}, (0, 2)),
        ({}, (2, 2)),
    ],
)
def test_a_record_says_what_the_client_has_held_since_a_question(said: dict[str, int], since: tuple[int, int]) -> None:
    page = bytearray(layout.PAGE_SIZE)
    for field, value in ({"memory_bytes": 2 * MIB} | said).items():
        page[(at := layout.offset(layout.RecordPage, field)) : at + 8] = value.to_bytes(8, "little")
    assert RecordPage(memoryview(page)).memory_since_mib(7) == since


def test_what_contradicts_all_that_a_client_held_while_the_driver_was_asked_counts() -> None:
    slots = Slots()
    client = slots.join(200)
    says(slots, 230)
    client.record.meanwhile = 100, 300
    for _ in range(2):
        says(slots, 350)
    assert client.uncounted_mib == 50
    for _ in range(2):
        says(slots, 110)
    assert client.uncounted_mib == 10


def test_a_client_with_pools_is_charged_what_its_own_context_takes_not_what_those_of_others_do() -> None:
    slots = Slots()
    says(slots, 0)
    other = slots.join(0)
    says(slots, 300)
    client = slots.join(200)
    assert client.uncounted_mib == 300, "a guess, until the driver has said"
    slots.clients = {0: client}
    client.record.meanwhile = (0,)  # as of a client with pools
    for _ in range(3):
        says(slots, 250)
    assert client.uncounted_mib == 50
    assert other.uncounted_mib == 300
    assert slots.join(0).uncounted_mib < 300
