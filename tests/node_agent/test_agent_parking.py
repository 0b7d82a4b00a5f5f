"""The agent lets be tenants leave a GPU's memory for hp, and lets them back only where there is room for them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orion.hook import layout
from orion.hook.join import CreditAnswer, MessageType
from orion.hook.layout import ParkingReason, ParkingState
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient, RequestRefused
from tests.node_agent.conftest import GPU, AgentProcess, eventually
from tests.node_agent.fake_card import MIB, Card, Tenant, ask_for_room, wait_for_room
from tests.node_agent.protocol_client import ProtocolClient, current_grant

GIB = 1 << 30
QUICK = (
    *("--parking-reserve-mib", "0", "--parking-margin-mib", "64", "--parking-stay-factor", "1"),
    *("--parking-answer-seconds", "3", "--parking-retry-seconds", "4"),
)


class Cards:
    """An agent of a fake GPU of 8 GiB, and the tenants on it."""

    def __init__(self, agent: AgentProcess, card: Card) -> None:
        self.agent, self.card = agent, card
        self.clients: list[ProtocolClient] = []

    def administrator(self) -> AgentClient:
        return AgentClient(self.agent.root)

    def be(self, slot: str, mib: int, limit: int = 0) -> Tenant:
        with self.administrator() as administrator:
            administrator.set_grant(GPU, slot, memory_parks=True, memory_limit_bytes=limit)
        tenant = Tenant.on(self.card, self.agent.slot(slot), mib)
        self.clients.append(tenant)
        return tenant

    def hp(self, mib: int = 0, wait_ms: int = 30_000, limit: int = 0) -> ProtocolClient:
        """Let hp join. What it holds before others join is no growth, for which room would be kept free."""
        with self.administrator() as administrator:
            administrator.set_grant(GPU, "hp-0", memory_wait_ms=wait_ms, memory_limit_bytes=limit)
        client = ProtocolClient(self.agent.slot("hp-0")).join()
        self.clients.append(client)
        assert self.hold(client, mib)
        return client

    def hold(self, hp: ProtocolClient, mib: int) -> bool:
        if not self.card.hold(hp, mib):
            return False
        hp.record.set(layout.RecordPage, "memory_bytes", mib * MIB)
        return True

    def slot(self, name: str) -> agent_pb2.Slot:
        with self.administrator() as administrator:
            return next(slot for slot in administrator.snapshot().gpus[0].slots if slot.name == name)

    def parking(self, name: str) -> agent_pb2.Parking:
        return self.slot(name).parking

    def is_in(self, name: str, state: str) -> Callable[[], bool]:
        return lambda: self.parking(name).state == state

    def conditions(self, name: str) -> dict[str, str]:
        return {each.reason: each.message for client in self.slot(name).clients for each in client.conditions}

    def restart(self) -> None:
        """Kill the agent and start the next one; the tenants' threads rest until they have their new pages."""
        self.agent.kill()
        tenants = [each for each in self.clients if isinstance(each, Tenant)]
        obedient = [each for each in tenants if each.thread is not None]
        for tenant in obedient:
            tenant.rest()
        self.agent.start(*QUICK)
        for client in self.clients:
            client.return_to_agent()
        for tenant in obedient:
            tenant.obey()


@pytest.fixture
def cards(socket_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cards]:
    card = Card(tmp_path)
    monkeypatch.setenv("ORION_TEST_BOOKS", str(card.file))
    agent = AgentProcess(socket_folder / "root", Card.library(tmp_path))
    agent.start(*QUICK)
    made = Cards(agent, card)
    yield made
    for client in made.clients:
        client.close()
    if agent.process is not None:
        agent.kill()
    assert not card.lost, "a tenant came back where there was no room"


def test_a_tenant_leaves_for_hp_and_comes_back_when_hp_has_freed(cards: Cards) -> None:
    hp = cards.hp(900)
    assert current_grant(hp.grant).memory_wait_ns == 30_000_000_000
    small, large = cards.be("be-0", 2048).obey(), cards.be("be-1", 4500).obey()
    assert not cards.hold(hp, 2048)
    assert wait_for_room(hp, 1148 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 2048)
    assert (small.state, large.state) == (ParkingState.PARKED, ParkingState.RUNNING)
    eventually(cards.is_in("be-0", "parked"))
    shown = cards.parking("be-0")
    assert (shown.bytes, shown.reason) == (2 * GIB, "")
    assert [client.state for client in cards.slot("be-0").clients] == ["parked"]
    assert cards.hold(hp, 0)
    small.reaches(ParkingState.RUNNING)
    eventually(cards.is_in("be-0", ""))
    assert cards.parking("be-0").total_seconds > 0
    assert small.moved == [ParkingState.LEAVING, ParkingState.PARKED, ParkingState.RETURNING, ParkingState.RUNNING]
    with cards.administrator() as administrator:
        assert administrator.snapshot().gpus[0].parkings == {"left": 1, "returned": 1}


def test_room_that_is_there_is_given_without_anybody_leaving(cards: Cards) -> None:
    tenant, hp = cards.be("be-0", 1024).obey(), cards.hp()
    assert wait_for_room(hp, 2 * GIB) is CreditAnswer.YES
    assert tenant.park == 0


@pytest.mark.parametrize("size", [8 * GIB, 9 * GIB, 2**64 - 1])
def test_hp_learns_at_once_that_nobody_can_make_so_much_room(cards: Cards, size: int) -> None:
    tenant, hp = cards.be("be-0", 1024).obey(), cards.hp()
    assert cards.hold(hp, 1024)
    assert wait_for_room(hp, size) is CreditAnswer.NO
    assert tenant.park == 0


@pytest.mark.parametrize(("held", "size"), [(0, 3 * GIB), (1500, GIB), (2**44 - 1, GIB)])
def test_hp_gets_no_room_beyond_its_limit(cards: Cards, held: int, size: int) -> None:
    cards.be("be-0", 8000).obey()
    hp = cards.hp(limit=2 * GIB)
    hp.record.set(layout.RecordPage, "memory_bytes", held * MIB)
    with ProtocolClient(cards.agent.slot("hp-0")).join() as second:
        second.record.set(layout.RecordPage, "memory_bytes", GIB)
        assert wait_for_room(hp, size) is CreditAnswer.NO


def test_who_does_not_wait_for_room_gets_none(cards: Cards) -> None:
    tenant, hp = cards.be("be-0", 8000).obey(), cards.hp(wait_ms=0)
    assert ask_for_room(hp, GIB) is CreditAnswer.NO
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=False)
    assert ask_for_room(tenant, GIB) is CreditAnswer.NO, "it cannot leave to wait for room"


def test_a_tenant_that_finds_no_room_comes_back_in_its_turn_with_room_for_it(cards: Cards) -> None:
    large, small = cards.be("be-0", 5000).obey(), cards.be("be-1", 2500).obey()
    large.says(6500)  # with what it wants
    assert ask_for_room(large, 1500 * MIB) is CreditAnswer.LATER
    large.reaches(ParkingState.PARKED)
    assert small.state is ParkingState.RUNNING
    assert ask_for_room(large, 1500 * MIB) is CreditAnswer.LATER, "it waits for its turn"
    small.reaches(ParkingState.PARKED)
    large.reaches(ParkingState.RUNNING)
    assert wait_for_room(large, 10) is CreditAnswer.YES


def test_a_tenant_learns_that_it_can_never_have_so_much(cards: Cards) -> None:
    tenant = cards.be("be-0", 6000).obey()
    tenant.says(9000)
    assert wait_for_room(tenant, 3000 * MIB) is CreditAnswer.NO
    assert tenant.park == 0


def test_only_a_slot_that_parks_is_asked(cards: Cards) -> None:
    stays, hp = cards.be("be-0", 7000).obey(), cards.hp()
    with cards.administrator() as administrator:
        administrator.set_grant(GPU, "be-0", memory_parks=False)
    assert wait_for_room(hp, 2 * GIB) is CreditAnswer.NO
    assert stays.park == 0
    with cards.administrator() as administrator, pytest.raises(RequestRefused, match="orion run --park"):
        administrator.park_slot(GPU, "be-0", away=True)


def test_who_refuses_is_passed_over_with_its_reason_and_asked_again_later(cards: Cards) -> None:
    refuses, leaves = cards.be("be-0", 3000), cards.be("be-1", 4000).obey()
    hp = cards.hp()
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    eventually(lambda: refuses.park == 1)
    refuses.answer(ParkingState.REFUSED, ParkingReason.MANAGED, result=801)
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    assert leaves.state is ParkingState.PARKED
    assert refuses.park == 2
    assert "managed memory" in cards.conditions("be-0")["ParkRefused"]
    assert "CUDA error 801" in cards.conditions("be-0")["ParkRefused"]
    assert cards.parking("be-0").state == "refused"
    eventually(lambda: not cards.conditions("be-0"), "the refusal is forgotten when the tenant may be asked again")
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: refuses.park == 3)


def test_who_does_not_answer_is_passed_over(cards: Cards) -> None:
    silent, leaves = cards.be("be-0", 3000), cards.be("be-1", 4000).obey()
    hp = cards.hp()
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    eventually(lambda: "ParkRefused" in cards.conditions("be-0"))
    assert "did not answer" in cards.conditions("be-0")["ParkRefused"]
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    assert (leaves.state, silent.park) == (ParkingState.PARKED, 2)


def test_who_does_not_answer_is_not_asked_again_before_it_shows_life(cards: Cards) -> None:
    silent, refuses = cards.be("be-0", 3000), cards.be("be-1", 4000)
    hp = cards.hp()
    assert ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER
    eventually(lambda: cards.parking("be-0").state == "refused")
    eventually(lambda: ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER and refuses.park == 1)
    refuses.answer(ParkingState.REFUSED, ParkingReason.BUSY)
    eventually(lambda: "ParkRefused" in cards.conditions("be-1"))
    eventually(lambda: not cards.conditions("be-1"), "who has refused may be asked again")
    assert "goes on" in cards.conditions("be-0")["ParkRefused"]
    assert wait_for_room(hp, 5500 * MIB) is CreditAnswer.NO, "hp does not wait for it"
    assert silent.park == 2
    silent.shows_life()
    eventually(lambda: ask_for_room(hp, 3000 * MIB) is CreditAnswer.LATER and silent.park == 3)


def test_who_does_not_come_back_is_not_called_again_before_it_shows_life(cards: Cards) -> None:
    tenant, hp = cards.be("be-0", 6000).obey(), cards.hp()
    assert wait_for_room(hp, 3000 * MIB) is CreditAnswer.YES
    tenant.reaches(ParkingState.PARKED)
    tenant.rest()
    assert cards.hold(hp, 0)
    eventually(lambda: tenant.park == 2)
    eventually(lambda: tenant.park == 3, "it does not answer, and stays away")
    refuses = cards.be("be-1", 1000)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-1", away=True)
        eventually(lambda: refuses.park == 1)
        refuses.answer(ParkingState.REFUSED, ParkingReason.BUSY)
        eventually(lambda: "ParkRefused" in cards.conditions("be-1"))
        administrator.park_slot(GPU, "be-1", away=False)
    eventually(lambda: not cards.conditions("be-1"), "so much time has passed")
    assert tenant.park == 3
    tenant.shows_life()
    eventually(lambda: tenant.park == 4)


def test_who_says_that_it_has_left_and_has_not_is_found_out(cards: Cards) -> None:
    liar = cards.be("be-0", 3000)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: liar.park == 1)
    cards.card.lists(os.getpid(), 3000)
    liar.answer(ParkingState.PARKED)
    eventually(lambda: "ParkRefused" in cards.conditions("be-0"))
    assert "the driver lists memory" in cards.conditions("be-0")["ParkRefused"]
    assert liar.park == 2


def test_who_cannot_come_back_is_reported_as_lost(cards: Cards) -> None:
    tenant = cards.be("be-0", 3000)
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(lambda: tenant.park == 1)
        for state in (ParkingState.LEAVING, ParkingState.PARKED):
            tenant.answer(state)
        eventually(cards.is_in("be-0", "parked"))
        administrator.park_slot(GPU, "be-0", away=False)
    eventually(lambda: tenant.park == 2)
    tenant.answer(ParkingState.LOST, ParkingReason.RESTORE, result=2)
    eventually(lambda: "ParkLost" in cards.conditions("be-0"))
    assert "restart it" in cards.conditions("be-0")["ParkLost"]
    eventually(cards.is_in("be-0", "lost"))


@pytest.mark.parametrize("word", [2**64 - 1, 0xFF, 0x0001_0000_0000_0002, 0xFFFF_FFFF_0000_0002, 0x0000_0001_FFFF_FF04])
def test_words_that_mean_nothing_harm_only_their_writer(cards: Cards, word: int) -> None:
    hp, hostile, leaves = cards.hp(3500), cards.be("be-0", 500), cards.be("be-1", 4000).obey()
    for name, value in (("parking", word), ("parking_since_ns", 2**64 - 1), ("parked_bytes", 2**64 - 1)):
        hostile.record.set(layout.RecordPage, name, value)
    assert wait_for_room(hp, 3500 * MIB) is CreditAnswer.YES
    leaves.reaches(ParkingState.PARKED)
    assert cards.hold(hp, 0)
    leaves.reaches(ParkingState.RUNNING)


def test_who_leaves_for_ever_and_says_that_it_holds_everything_delays_hp_only_for_a_while(cards: Cards) -> None:
    hp, hostile, leaves = cards.hp(3500), cards.be("be-0", 500, limit=GIB), cards.be("be-1", 4000).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
    eventually(lambda: hostile.park == 1)
    hostile.record.set(layout.RecordPage, "memory_bytes", 2**63)
    hostile.answer(ParkingState.LEAVING)
    assert wait_for_room(hp, 3500 * MIB) is CreditAnswer.YES
    leaves.reaches(ParkingState.PARKED)


def test_who_comes_back_for_ever_keeps_room_from_others_only_for_a_while(cards: Cards) -> None:
    hp, hostile = cards.hp(), cards.be("be-0", 500, limit=GIB).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        hostile.reaches(ParkingState.PARKED)
        hostile.rest()
        administrator.park_slot(GPU, "be-0", away=False)
    eventually(lambda: hostile.park == 2)
    hostile.record.set(layout.RecordPage, "memory_bytes", 2**63)
    hostile.answer(ParkingState.RETURNING)
    eventually(lambda: ask_for_room(hp, GIB) is CreditAnswer.YES)


def test_a_person_keeps_a_tenant_away_until_the_person_wants_it_back(cards: Cards) -> None:
    tenant = cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
        assert cards.parking("be-0").wished
        cards.restart()
    with cards.administrator() as administrator:
        eventually(cards.is_in("be-0", "parked"))
        administrator.park_slot(GPU, "be-0", away=False)
        tenant.reaches(ParkingState.RUNNING)
        with pytest.raises(RequestRefused, match="it is for hp"):
            administrator.park_slot(GPU, "hp-0", away=True)
        with pytest.raises(RequestRefused, match="has no slot 'be-99'"):
            administrator.park_slot(GPU, "be-99", away=True)
        administrator.set_grant(GPU, "be-1", memory_parks=True)
        with pytest.raises(RequestRefused, match="no process uses slot be-1"):
            administrator.park_slot(GPU, "be-1", away=True)


def test_a_new_process_of_a_parked_slot_is_asked(cards: Cards) -> None:
    cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
        second = cards.be("be-0", 10)
        second.sock.settimeout(10)
        kinds = set()
        while MessageType.PARK not in kinds:
            kinds.add(second.receive_message().head.type)
        second.obey().reaches(ParkingState.PARKED)
        administrator.park_slot(GPU, "be-0", away=False)
        second.reaches(ParkingState.RUNNING)


def test_a_slot_whose_holder_ends_while_parked_begins_again(cards: Cards) -> None:
    tenant = cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
        tenant.rest()
        administrator.prepare_slot(GPU, "be-0")
    with ProtocolClient(cards.agent.slot("be-0")).join() as new:
        assert new.grant.get(layout.GrantPage, "park") % 2 == 0
    shown = cards.slot("be-0")
    assert (shown.parking.state, shown.parking.wished, shown.memory_parks) == ("", False, False)


def test_a_slot_whose_processes_are_away_is_not_closed_by_hand(cards: Cards) -> None:
    tenant = cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        tenant.reaches(ParkingState.PARKED)
        with pytest.raises(RequestRefused, match="orion unpark be-0"):
            administrator.close_slot(GPU, "be-0")
        administrator.park_slot(GPU, "be-0", away=False)
        tenant.reaches(ParkingState.RUNNING)
        eventually(cards.is_in("be-0", ""))
        administrator.close_slot(GPU, "be-0")


def test_the_last_process_of_a_parked_slot_ends(cards: Cards) -> None:
    tenant = cards.be("be-0", 1024).obey()
    with cards.administrator() as administrator:
        administrator.park_slot(GPU, "be-0", away=True)
        eventually(cards.is_in("be-0", "parked"))
    tenant.close()
    cards.clients.remove(tenant)
    eventually(cards.is_in("be-0", ""), cards.agent.log())


PATH = [ParkingState.LEAVING, ParkingState.PARKED, ParkingState.RETURNING, ParkingState.RUNNING]


@pytest.mark.parametrize("killed_before", PATH)
def test_the_next_agent_finishes_what_a_killed_one_began(cards: Cards, killed_before: ParkingState) -> None:
    hp, tenant = cards.hp(4096), cards.be("be-0", 4096)
    tenant.stops_before = killed_before
    tenant.obey()
    ask_for_room(hp, 1024 * MIB)
    eventually(lambda: tenant.park == 1)
    if killed_before in (ParkingState.RETURNING, ParkingState.RUNNING):
        tenant.reaches(ParkingState.PARKED)
        assert cards.hold(hp, 0)
        eventually(lambda: tenant.park == 2)
    if killed_before is not ParkingState.LEAVING:
        tenant.reaches(PATH[PATH.index(killed_before) - 1])
    tenant.stops_before = None
    cards.restart()
    assert tenant.park % 2 == (1 if killed_before is not ParkingState.RUNNING else 0) or cards.card.held.get(hp) == 0
    assert cards.hold(hp, 0)
    tenant.reaches(ParkingState.RUNNING)
    eventually(lambda: tenant.park % 2 == 0 and tenant.state is ParkingState.RUNNING)
    assert cards.conditions("be-0") == {}


def test_a_client_that_stays_away_is_let_back_by_an_agent_that_has_lost_its_state(cards: Cards) -> None:
    hp, tenant = cards.hp(4096), cards.be("be-0", 4096).obey()
    assert wait_for_room(hp, 1024 * MIB) is CreditAnswer.YES
    assert cards.hold(hp, 7000)
    state = cards.agent.root / "state.json"
    cards.agent.kill()
    tenant.rest()
    state.write_text(state.read_text().replace('"park": 1', '"park": 0'))  # as if the last write had failed
    cards.agent.start(*QUICK)
    for client in cards.clients:
        client.return_to_agent()
    assert tenant.park == 1
    tenant.obey()
    assert cards.hold(hp, 0)
    tenant.reaches(ParkingState.RUNNING)


def test_a_client_that_joins_as_a_new_one_while_it_is_away_comes_back_when_there_is_room(cards: Cards) -> None:
    hp, tenant = cards.hp(7000), cards.be("be-0", 0)
    tenant.says(4096)  # what it will take when it comes back
    tenant.answer(ParkingState.PARKED)
    eventually(lambda: tenant.park == 1)
    assert cards.hold(hp, 0)
    tenant.obey().reaches(ParkingState.RUNNING)


def test_a_second_tenant_waits_for_its_turn_where_both_may_need_all(cards: Cards) -> None:
    first = cards.be("be-0", 5000, limit=6 * GIB).obey()
    second = cards.be("be-1", 100, limit=6 * GIB).obey()
    second.reaches(ParkingState.PARKED)
    second.says(5000)
    first.reaches(ParkingState.PARKED)  # after its stay
    second.reaches(ParkingState.RUNNING)
    first.reaches(ParkingState.RUNNING)
