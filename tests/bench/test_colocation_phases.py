"""Measurements and starts of processes on one host never happen at the same time, and neither waits for ever."""

import random
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.bench.colocation.host import Host
from orion.bench.colocation.phase_lock import OTHER, Kind, PhaseLock, Phases, Ticket

DEADLINE = 60.0

Step = tuple[Kind, int]
"""A party without a ticket asks for this kind; a party with a ticket gives its ticket back."""
STEPS = st.lists(st.tuples(st.sampled_from(sorted(OTHER)), st.integers(0, 4)), max_size=80)


class Parties:
    """Parties with at most one ticket each, like the threads of GPUs."""

    def __init__(self) -> None:
        self.phases = Phases()
        self.tickets: dict[int, Ticket] = {}

    def step(self, kind: Kind, party: int) -> None:
        if party in self.tickets:
            self.phases.give_back(self.tickets.pop(party))
        else:
            self.tickets[party] = self.phases.ask(kind, party)

    def of(self, kind: Kind, granted: bool) -> list[int]:
        return [party for party, ticket in self.tickets.items() if (ticket.kind, ticket.granted) == (kind, granted)]


@given(STEPS)
def test_the_groups_exclude_each_other_and_the_host_never_idles_while_a_party_waits(steps: list[Step]) -> None:
    parties = Parties()
    for kind, party in steps:
        parties.step(kind, party)
        assert not (parties.of("measure", True) and parties.of("change", True))
        if parties.tickets:
            assert parties.of("measure", True) or parties.of("change", True)
        assert parties.phases.is_pending("change") == any(
            ticket.kind == "change" for ticket in parties.tickets.values()
        )


@given(STEPS)
def test_no_measurement_begins_while_a_change_waits_except_after_a_phase_of_changes(steps: list[Step]) -> None:
    parties = Parties()
    for kind, party in steps:
        waited = parties.of("change", False)
        changing, before = parties.of("change", True), set(parties.of("measure", True))
        parties.step(kind, party)
        if waited and not changing and set(waited) & set(parties.of("change", False)):
            assert set(parties.of("measure", True)) <= before


@given(STEPS, st.sampled_from(sorted(OTHER)))
def test_a_waiting_party_enters_although_others_keep_asking(steps: list[Step], kind: Kind) -> None:
    parties = Parties()
    for step in steps:
        parties.step(*step)
    me = parties.phases.ask(kind, "me")
    for _ in range(20):  # all other parties keep asking for the other kind, one after another
        for party in range(5):
            if party in parties.tickets and parties.tickets[party].granted:
                parties.phases.give_back(parties.tickets.pop(party))
            if party not in parties.tickets:
                parties.step(OTHER[kind], party)
    assert me.granted


def test_changes_share_a_phase_and_waiting_measurements_follow_it() -> None:
    phases = Phases()
    running = phases.ask("measure", 0)
    first = phases.ask("change", 1)
    late = phases.ask("measure", 2)
    assert (running.granted, first.granted, late.granted) == (True, False, False)
    phases.give_back(running)
    joining = phases.ask("change", 0)  # party 0 asks after its run, while party 1 starts processes
    again = phases.ask("change", 0)
    assert (first.granted, joining.granted, again.granted, late.granted) == (True, True, False, False)
    phases.give_back(first)
    phases.give_back(joining)
    assert (late.granted, again.granted) == (True, False)
    phases.give_back(late)
    assert again.granted


def test_a_withdrawn_ticket_blocks_no_other() -> None:
    phases = Phases()
    phases.ask("measure", 0)
    change = phases.ask("change", 1)
    late = phases.ask("measure", 2)
    phases.give_back(change)
    assert late.granted


def test_threads_are_never_in_different_phases_and_all_finish() -> None:
    lock, counting = PhaseLock(), threading.Lock()
    inside: dict[Kind, int] = {"measure": 0, "change": 0}
    met: list[dict[Kind, int]] = []

    def work(party: int) -> None:
        draw = random.Random(party)
        for _ in range(200):
            kind: Kind = "change" if draw.random() < 0.3 else "measure"
            with lock.inside(kind, party):
                with counting:
                    inside[kind] += 1
                    if inside[OTHER[kind]]:
                        met.append(dict(inside))
                time.sleep(0)
                with counting:
                    inside[kind] -= 1

    threads = [threading.Thread(target=work, args=(party,), daemon=True) for party in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert not any(thread.is_alive() for thread in threads)
    assert met == []
    assert not lock.change_pending


def test_an_exception_from_tick_ends_the_wait_and_leaves_the_lock_unchanged() -> None:
    def stop() -> None:
        raise InterruptedError

    lock = PhaseLock(stop)
    with lock.inside("measure", 0):
        with pytest.raises(InterruptedError), lock.inside("change", 1):
            pass
        assert not lock.change_pending
    with lock.inside("change", 1):
        assert lock.change_pending


def test_a_run_lists_only_events_during_the_run() -> None:
    host = Host()
    with host.changing(0, "before"):
        assert host.change_pending
    since = time.monotonic()
    assert host.disturbances(since, since) == []
    host.note(1, "a process ended")
    with host.changing(2, "going on"):
        found = host.disturbances(since, since)
    assert [(each["gpu"], each["what"]) for each in found] == [(1, "a process ended"), (2, "going on")]
    assert found[0]["to"] >= found[0]["from"] >= 0
    assert found[1]["to"] is None
