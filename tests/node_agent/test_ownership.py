"""Who gives a node's slots: never both programs, changes only on an empty node, and the next agent knows it."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orion.crds.allocation import HANDING_OVER, Giver
from orion.errors import Conflict
from orion.node_agent.advertising.advertising import FINE
from orion.node_agent.advertising.ownership import UNKNOWN, Holding, OwnerFile, Ownership, Remembered

PLUGIN, DRA = Giver.DEVICE_PLUGIN, Giver.DRA
SETTLE = 10.0
LATE = 9.0
""" The agent learns of a pod at the latest so long after it was given a slot. """
EMPTY = Holding()


def held(giver: Giver, *names: str) -> Holding:
    return Holding({giver: names})


class Node(RuleBasedStateMachine):
    """A node whose label, pods and agents come and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.label, self.file = 100.0, "", Remembered()
        self.writable = self.answers = True
        self.pods: list[tuple[Giver, float]] = []
        """ The program that gave each pod its slot, and when the agent learns of it. """
        self.begin()

    def begin(self) -> None:
        self.ownership = Ownership(self.file, self.write, SETTLE, self.now)

    def write(self, giver: Giver, label: str) -> bool:
        if self.writable:
            if giver is not self.file.giver and self.file.giver is not None:
                assert not self.pods, "the node changes hands while a pod has a slot"
            self.file = Remembered(giver, label)
        return self.writable

    def look(self) -> None:
        seen = [giver for giver, since in self.pods if since <= self.now]
        by = {giver: [f"pod-{giver}"] * (giver in seen) for giver in Giver}
        self.ownership.want(self.label, self.now)
        if not self.ownership.is_settled:
            self.ownership.look(Holding(by, certain=self.answers), self.now)

    @initialize(label=st.sampled_from([*Giver, ""]))
    def boot(self, label: str) -> None:
        self.label = label
        self.look()

    @precondition(lambda self: self.ownership.is_settled)
    @rule()
    def ask_for_the_other(self) -> None:
        """Many steps need a change that is under way."""
        assert self.ownership.giver is not None
        self.label = self.ownership.giver.other
        self.look()

    @rule(label=st.sampled_from([*Giver, "DRA"]))
    def relabel(self, label: str) -> None:
        self.label = label
        self.look()

    @rule(seconds=st.sampled_from([0.5, 2.5]), times=st.integers(1, 10))
    def wait(self, seconds: float, times: int) -> None:
        for _ in range(times):
            self.now += seconds
            self.look()

    @precondition(lambda self: self.ownership.giver and self.ownership.verdict("") == FINE)
    @rule(late=st.sampled_from([0.0, LATE / 2, LATE]))
    def start_a_pod(self, late: float) -> None:
        assert self.ownership.giver is not None
        self.pods.append((self.ownership.giver, self.now + late))

    @precondition(lambda self: self.pods)
    @rule()
    def end_a_pod(self) -> None:
        self.pods.pop(0)
        self.look()

    @rule()
    def restart_the_agent(self) -> None:
        self.begin()

    @rule()
    def reboot(self) -> None:
        """The file is gone. The pods stay, and the kubelet knows them at once."""
        self.file, self.pods = Remembered(), [(giver, self.now) for giver, _ in self.pods]
        self.begin()

    @rule(works=st.sampled_from([(True, True), (True, True), (False, True), (True, False)]))
    def disturb(self, works: tuple[bool, bool]) -> None:
        self.writable, self.answers = works

    @invariant()
    def all_pods_have_their_slots_from_who_gives_now(self) -> None:
        if self.ownership.giver is not None:
            assert {giver for giver, _ in self.pods} <= {self.ownership.giver}

    @invariant()
    def the_next_agent_says_the_same(self) -> None:
        assert self.file.giver is self.ownership.giver

    @invariant()
    def while_the_label_asks_for_a_change_nobody_gets_a_slot(self) -> None:
        known = self.ownership
        if known.wanted is not None and known.wanted is not known.giver:
            assert known.verdict("").cordoned


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=500, stateful_step_count=40, deadline=None)


def of(giver: Giver | None = None, label: str = "") -> Ownership:
    return Ownership(Remembered(giver, label), lambda *_: True, SETTLE, 0.0)


def test_a_fresh_node_belongs_to_the_program_that_its_label_names() -> None:
    for giver in Giver:
        fresh = of()
        assert fresh.verdict("").reason == UNKNOWN
        fresh.look(EMPTY, 1.0)
        assert fresh.verdict("").reason == UNKNOWN  # the operator has not named the label
        fresh.want(giver, 2.0)
        fresh.look(EMPTY, 2.0)
        assert (fresh.giver, fresh.verdict("")) == (giver, FINE)


def test_after_a_boot_those_who_hold_slots_show_who_gives() -> None:
    for giver in Giver:
        after = of()
        after.want(giver.other, 1.0)
        after.look(held(giver, "n/a"), 1.0)
        assert after.giver is giver
        assert after.verdict("").reason == HANDING_OVER


def test_the_change_says_what_it_waits_for() -> None:
    node = of(PLUGIN, PLUGIN)
    node.want(DRA, 1.0)
    node.look(Holding({PLUGIN: ["n/b", "n/a", "n/a"]}, ["n/c", "n/d"]), 1.0)
    assert node.waits_for == (
        "label orion.gpu/allocation of the node asks for dra: the DRA driver gives this node's slots when nobody holds "
        "a slot here any more; these do: n/a, n/b, n/c and 1 more"
    )
    assert node.verdict("").message == node.waits_for
    node.look(Holding(certain=False), 2.0)
    assert "once kubelet and operator have said" in node.waits_for


def test_a_label_that_comes_back_opens_the_node_again() -> None:
    node = of(PLUGIN, PLUGIN)
    node.want(DRA, 1.0)
    node.look(held(PLUGIN, "n/a"), 1.0)
    node.want(PLUGIN, 2.0)
    assert (node.verdict(""), node.waits_for) == (FINE, "")


def test_a_label_of_nonsense_changes_nothing_and_a_fresh_node_says_so() -> None:
    node = of(DRA, DRA)
    node.want("DRA", 1.0)
    assert (node.giver, node.verdict("")) == (DRA, FINE)
    fresh = of()
    fresh.want("DRA", 1.0)
    fresh.look(EMPTY, 1.0)
    assert "must be device-plugin or dra, not 'DRA'" in fresh.verdict("").message


def test_only_who_gives_may_give() -> None:
    node = of(DRA, DRA)
    node.refuse(DRA)
    with pytest.raises(Conflict, match="not the device plugin but the DRA driver gives this node's slots"):
        node.refuse(PLUGIN)
    assert [node.contradicts(by_claim) for by_claim in (True, False)] == [False, True]


@pytest.mark.parametrize("content", [b"", b"dra", b"both\ndra\n", b"\xff\n\n"])
def test_an_unreadable_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "owner"
    file.write_bytes(content)
    assert OwnerFile(file).read() == Remembered()
    assert OwnerFile(file).write(DRA, "nonsense")
    assert OwnerFile(file).read() == Remembered(DRA, "nonsense")


def test_a_full_disk_keeps_the_node_in_its_hands(tmp_path: Path) -> None:
    file = OwnerFile(tmp_path / "gone" / "owner")
    node = Ownership(Remembered(PLUGIN, PLUGIN), file.write, SETTLE, 0.0)
    node.want(DRA, 1.0)
    node.look(EMPTY, 20.0)
    assert node.giver is PLUGIN
    assert node.verdict("").cordoned
