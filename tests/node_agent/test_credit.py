"""The credits of a slot add up to no more than its limit, whatever clients do between two looks of the agent."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orion.hook.join import CreditAnswer
from orion.node_agent.clients.credit import Credit
from orion.node_agent.pages import agent_pages
from orion.node_agent.processes.liveness import Program
from tests.waiting import eventually

LIMIT = 512
MIB = 1 << 20


class Record:
    """A stand-in for a client's page: what the client holds at each of the agent's looks; the last one stays."""

    def __init__(self, *held: int) -> None:
        self.held = list(held)
        self.credit_epoch = 0

    @property
    def memory_mib(self) -> int:
        return self.held.pop(0) if len(self.held) > 1 else self.held[0]


class StandIn(SimpleNamespace):
    """In place of a client."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Slots:
    """One slot with clients, in place of a GPU."""

    def __init__(self) -> None:
        grant = SimpleNamespace(memory_limit_bytes=LIMIT * MIB)
        self.slot: Any = SimpleNamespace(name="be-0", page=agent_pages.GrantPage("GPU-1"), grant=grant)
        self.slots, self.clients, self.awaited = {"be-0": self.slot}, dict[int, Any](), dict[int, Any]()
        self.credit = Credit(self)  # type: ignore[arg-type]

    def of_slot(self, slot: object) -> list[Any]:
        return list(self.clients.values())

    def join(self, *held: int) -> Any:
        """Add a client; its process is this one, which lives."""
        index = len(self.clients)
        client = StandIn(
            slot=self.slot, key=(index, 1), process_id=os.getpid(), program=None, record=Record(*held),
            keeps_credit=True, returned=False, joined_ns=0, uncounted_mib=0, said_mib=0, last_uncounted_mib=None,
        )  # fmt: skip
        self.clients[index] = client
        self.credit.joined(client)  # type: ignore[arg-type]
        return client

    def credit_of(self, client: Any) -> int:
        return self.slot.page.credit(client.key[0])  # type: ignore[no-any-return]

    def used(self) -> int:
        """Return what the slot's page says that its processes hold."""
        return self.slot.page._words[agent_pages.GrantPage._used]  # type: ignore[no-any-return]

    def give(self, client: Any, mib: int, *held: int) -> None:
        self.slot.page.set_credit(client.key[0], mib)
        client.record.held = list(held)


def test_a_client_alone_has_the_whole_limit_and_the_next_one_gets_what_it_asks_for() -> None:
    slots = Slots()
    one = slots.join(0)
    assert slots.credit_of(one) == LIMIT
    two = slots.join(0)
    assert (slots.credit_of(one), slots.credit_of(two)) == (LIMIT, 0)
    assert slots.credit.asked(two, 100) is CreditAnswer.YES
    assert slots.credit_of(two) >= 100
    assert slots.credit_of(one) + slots.credit_of(two) <= LIMIT
    assert slots.credit.asked(two, LIMIT + 1) is CreditAnswer.NO


@pytest.mark.parametrize("look", range(1, 9))
def test_what_a_client_spends_between_two_looks_is_not_given_away(look: int) -> None:
    slots = Slots()
    one, two = slots.join(0), slots.join(0)
    slots.give(one, 400, *[100] * look, 400)  # it spends all its credit after that many looks
    slots.give(two, 112, 112)
    answer = slots.credit.asked(two, 130)
    assert max(slots.credit_of(one), 400 if answer is not CreditAnswer.YES else 0) + slots.credit_of(two) <= LIMIT
    assert slots.credit_of(one) <= 400


def test_a_wish_that_cannot_be_fulfilled_takes_nothing_from_others() -> None:
    slots = Slots()
    one, two = slots.join(0), slots.join(0)
    slots.give(one, 400, 300)
    slots.give(two, 112, 112)
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    assert (slots.credit_of(one), slots.credit_of(two)) == (400, 112)


@pytest.mark.parametrize("held", [2**31, 2**44, 2**64])
def test_a_client_that_says_nonsense_harms_only_its_slot(held: int) -> None:
    slots = Slots()
    liar, other = slots.join(0), slots.join(0)
    liar.record.held = [held]
    slots.credit.look()
    assert slots.credit.asked(other, 1) is CreditAnswer.NO
    slots.credit.left(liar)


def test_a_process_that_leaves_and_lives_keeps_what_it_holds_until_it_has_joined_again() -> None:
    slots = Slots()
    one, two = slots.join(0), slots.join(0)
    one.record.held = [300]
    del slots.clients[0]
    slots.credit.left(one)
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    again = slots.join(0)
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    again.record.held, again.record.credit_epoch = [200], slots.slot.page.epoch
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


def test_a_process_that_leaves_again_and_again_is_remembered_once_and_only_where_there_is_a_limit() -> None:
    slots = Slots()
    for held in (100, 200, 300):
        client = slots.join(held)
        slots.clients.clear()
        slots.credit.left(client)
    assert [each.mib for each in slots.credit._past["be-0"]] == [300]
    slots.slot.grant.memory_limit_bytes = 0
    slots.credit.forget(slots.slot)
    slots.credit.left(slots.join(300))
    assert not slots.credit._past


def says(slots: Slots, held_mib: int) -> None:
    """Let the driver say what this process, which is that of all clients, holds."""
    slots.credit.asks()
    slots.credit.answered({os.getpid(): held_mib * MIB})


def test_what_the_driver_holds_for_a_process_is_part_of_the_slots_sum() -> None:
    slots = Slots()
    alone = slots.join(100)
    says(slots, 130)
    assert slots.credit_of(alone) == LIMIT - 30
    assert slots.used() == 130
    assert slots.credit.asked(alone, LIMIT - 29) is CreditAnswer.NO
    assert slots.credit.asked(alone, LIMIT - 30) is CreditAnswer.YES


def test_a_client_that_makes_its_context_is_charged_what_others_need_for_theirs() -> None:
    slots = Slots()
    slots.join(100)
    says(slots, 130)
    new = slots.join(0)
    assert slots.used() == 100 + 30 + 30
    new.joined_ns = time.monotonic_ns()
    says(slots, 0)
    assert new.uncounted_mib == 30
    new.joined_ns = 0
    says(slots, 0)
    assert new.uncounted_mib == 0


@pytest.mark.parametrize("later", [100, 101, 115])
def test_what_the_driver_rounds_up_or_listed_once_is_no_context(later: int) -> None:
    slots = Slots()
    slots.join(100)
    says(slots, 130)
    for _ in range(2):
        says(slots, later)
    assert slots.join(0).uncounted_mib == 0


def test_a_client_waits_for_what_its_context_may_take_until_the_context_is_made() -> None:
    slots = Slots()
    slots.join(0)
    says(slots, 100)
    slots.clients.clear()
    new = slots.join(0)
    new.joined_ns = time.monotonic_ns()
    assert slots.credit.asked(new, LIMIT + 1) is CreditAnswer.NO
    assert slots.credit.asked(new, LIMIT - 50) is CreditAnswer.LATER
    for _ in range(2):
        says(slots, 40)
    assert (new.uncounted_mib, slots.credit.asked(new, LIMIT - 50)) == (40, CreditAnswer.YES)
    assert slots.credit.asked(new, LIMIT - 39) is CreditAnswer.NO


def test_a_process_that_hides_what_it_holds_keeps_no_later_one_from_allocating() -> None:
    slots = Slots()
    slots.join(1)
    says(slots, 40_000)
    assert slots.join(0).uncounted_mib == 1024


def test_a_client_that_says_too_little_lowers_the_credit_of_its_slot() -> None:
    slots = Slots()
    liar, other = slots.join(0), slots.join(100)
    slots.give(liar, 0, 0)
    slots.give(other, 0, 100)
    says(slots, 300)  # the liar holds 300, the other one 200 more than it says
    assert slots.used() == 100 + 300 + 200
    assert slots.credit.asked(other, 101) is CreditAnswer.NO


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


def test_a_driver_that_does_not_answer_changes_nothing() -> None:
    slots = Slots()
    client = slots.join(100)
    says(slots, 130)
    slots.credit.answered(None)
    slots.credit.look()
    assert slots.credit_of(client) == LIMIT - 30


def test_what_a_dead_process_held_is_free_when_the_driver_lists_it_no_longer() -> None:
    slots = Slots()
    process = subprocess.Popen(["sleep", "60"])
    dead, two = slots.join(300), slots.join(0)
    dead.process_id, dead.program = process.pid, Program.of(process.pid)
    slots.credit.answered({process.pid: 300 * MIB})
    process.kill()
    process.wait()
    del slots.clients[0]
    slots.credit.left(dead)
    assert slots.credit.asked(two, 300) is CreditAnswer.NO
    slots.credit.answered({})
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


FIRST_THREAD_ENDS = """
import ctypes, os, sys, threading
threading.Thread(target=threading.Event().wait).start()
print(flush=True)
sys.stdin.readline()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # ends the calling thread alone
"""


def test_what_a_process_holds_is_not_free_before_its_last_thread_has_ended() -> None:
    slots = Slots()
    ending = subprocess.Popen(
        [sys.executable, "-c", FIRST_THREAD_ENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    with ending as process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        dead, two = slots.join(300), slots.join(0)
        dead.process_id, dead.program = process.pid, Program.of(process.pid)
        process.stdin.write(b"\n")
        eventually(lambda: b") Z " in Path(f"/proc/{process.pid}/stat").read_bytes(), "the first thread has ended")
        del slots.clients[0]
        slots.credit.left(dead)
        slots.credit.answered({process.pid: 300 * MIB})
        assert slots.credit.asked(two, 300) is CreditAnswer.NO
    slots.credit.answered({})
    assert slots.credit.asked(two, 300) is CreditAnswer.YES


def test_a_process_of_which_the_driver_says_nothing_hides_no_other_one() -> None:
    slots = Slots()
    process = subprocess.Popen(["sleep", "60"])
    dead, two = slots.join(300), slots.join(100)
    dead.process_id, dead.program = process.pid, Program.of(process.pid)
    slots.credit.asks()
    slots.credit.answered({process.pid: 320 * MIB, os.getpid(): 130 * MIB})
    slots.credit.answered({process.pid: None, os.getpid(): 130 * MIB})
    assert slots.used() == 320 + 130
    process.kill()
    process.wait()
    del slots.clients[0]
    slots.credit.left(dead)
    slots.credit.answered({process.pid: None, os.getpid(): 130 * MIB})  # it still ends
    assert slots.credit.asked(two, 300) is CreditAnswer.NO


def test_what_the_driver_held_for_a_parked_process_is_charged_again_after_its_return() -> None:
    slots = Slots()
    parked = slots.join(100)
    says(slots, 130)
    for _ in range(2):  # the driver lists nothing for a process that has left, and its account stays
        slots.credit.asks()
        slots.credit.answered({})
    assert (parked.uncounted_mib, slots.used(), slots.credit_of(parked)) == (0, 100, LIMIT)
    assert slots.credit.asked(parked, LIMIT + 1) is CreditAnswer.NO
    for _ in range(2):
        says(slots, 130)
    assert (parked.uncounted_mib, slots.used(), slots.credit_of(parked)) == (30, 130, LIMIT - 30)
    assert slots.join(0).uncounted_mib == 30


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(("spend", "free", "ask", "look", "limit")), st.integers(0, 3), st.integers(1, 600))
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_credits_and_what_is_held_never_exceed_the_limit(steps: list[Step]) -> None:
    slots = Slots()
    clients = [slots.join(0) for _ in range(4)]
    highest = LIMIT
    for what, who, mib in steps:
        client = clients[who]
        held = client.record.held[0]
        if what == "spend" and held + mib <= min(slots.credit_of(client), slots.slot.grant.memory_limit_bytes // MIB):
            client.record.held = [held + mib]
        elif what == "free":
            client.record.held = [max(0, held - mib)]
        elif what == "ask":
            slots.credit.asked(client, held + mib)
        elif what == "look":
            slots.credit.look()
        elif what == "limit":
            slots.slot.grant.memory_limit_bytes = mib * MIB
            slots.credit.look_at(slots.slot)
            highest = max(mib, sum(each.record.held[0] for each in clients))
        assert sum(max(slots.credit_of(each), each.record.held[0]) for each in clients) <= highest
