"""Who leaves where host memory is short, and who keeps room that others need."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.parking.deciding import decide
from orion.node_agent.parking.host_room import HostRoom
from orion.node_agent.parking.keeping_room import who_keep_room
from orion.node_agent.parking.known import Known
from orion.node_agent.parking.view import Place, Room, Tenant, View, Wishes
from orion.node_agent.processes.host_memory import HostMemory
from tests.node_agent.parking_views import GIB, A, B, tenant, view

PODS = "/kubepods.slice"
POD = f"{PODS}/kubepods-pod5e4f6a2c_0d1b_4c3a_9f8e_7b6a5d4c3b2a.slice"
CONTAINER = f"{POD}/cri-containerd-0123.scope"
RETRY = 60.0


class Memory(HostMemory):
    """Host memory whose rests a test sets, in GiB. A process is in the container of its number."""

    def __init__(self, node: float = 1000, **rests: float) -> None:
        self.node, self.rests, self.read = node, rests, list[str]()

    def cgroups(self, process_id: int) -> list[Path]:
        return [] if process_id < 0 else [Path(f"/c{process_id}"), Path("/all")]

    def name(self, folder: Path) -> str:
        return str(folder)

    def left(self, folder: Path) -> int | None:
        self.read.append(folder.name)
        left = self.rests.get(folder.name)
        return None if left is None else round(left * GIB)

    def node_left(self) -> int | None:
        return round(self.node * GIB)


def present(**processes: float) -> Any:
    """Return a tenant whose processes hold so many GiB; `c1_b` is a second client of process 1."""
    clients = [
        SimpleNamespace(
            process_id=int(name[1:].partition("_")[0]),
            record=SimpleNamespace(memory_mib=round(gib * 1024)),
            uncounted_mib=0,
            stays=False,
        )
        for name, gib in processes.items()
    ]
    return SimpleNamespace(members=[SimpleNamespace(clients=clients, held=80 * GIB)])


def decided(room: HostRoom, view: View, tenants: dict[str, Any]) -> tuple[Wishes, dict[str, str]]:
    """Let a thread read what the decision needs."""
    room.forget()
    while (found := room.decide(view, tenants)) is None:
        room.read()
    return found


def charged(name: str, held: float, gib: float, place: str = "/c", **fields: object) -> Tenant:
    return tenant(name, Place.HERE, held, charged={place: round(gib * GIB)}, **fields)


def seen(free: float, left: float, *tenants: Tenant, place: str = "/c", **room: float) -> View:
    return replace(view(free, *tenants, **room), host={place: round(left * GIB)})


def test_who_does_not_fit_is_passed_over_and_another_one_leaves() -> None:
    short, fits = charged("short", 3, 3), tenant("fits", Place.HERE, 5)
    assert decide(seen(0, 2, short, fits, wished=2)).leave == ("fits",)
    assert decide(seen(0, 3, short, fits, wished=2)).leave == ("short",)
    assert decide(seen(0, 2, short, wished=2)).hopeless == {A}


def test_those_that_fit_only_one_after_the_other_leave_so() -> None:
    both = charged("a", 3, 3), charged("b", 3, 3)
    first = decide(seen(0, 4, *both, wished=5))
    assert (first.leave, first.hopeless) == (("a",), frozenset()), "hp waits until the first has left"
    leaving = replace(both[0], place=Place.LEAVING)
    assert decide(seen(0, 4, leaving, both[1], wished=5)) == replace(first, leave=())
    assert decide(seen(3, 4, both[1], wished=5)).leave == ("b",)


def test_a_person_sends_nobody_away_who_does_not_fit() -> None:
    assert decide(seen(9, 2, charged("a", 3, 3, is_wished_away=True))).leave == ()


def test_nobody_makes_a_turn_possible_who_does_not_fit() -> None:
    away = tenant("away", Place.AWAY, 4)
    here = [charged(name, 4, 4, clock=9) for name in "ab"]
    assert decide(seen(0, 4, away, *here)).leave == ("a",)
    assert decide(seen(0, 3, away, *here)).leave == ()
    large = replace(away, held={A: 8 * GIB})
    assert decide(seen(0, 4, large, *here)).leave == (), "one alone makes too little room"


def test_who_waits_for_host_memory_alone_keeps_nobody_away() -> None:
    large, small = tenant("large", Place.AWAY, 7, clock=1.0), tenant("small", Place.AWAY, 1, clock=2.0)
    here = charged("a", 4, 4, clock=9.0), charged("b", 3, 3, clock=8.0)
    assert decide(seen(1, 6, large, small, *here)) == Wishes(back=("small",)), "either can leave, not both"
    assert decide(seen(1, 7, large, small, *here)) == Wishes(leave=("a", "b"))
    returned = replace(small, place=Place.HERE, charged={"/c": GIB})
    assert decide(seen(0, 8, large, returned, *here)).leave == ("a", "b"), "the small one leaves it as much room"
    leaving = Tenant("leaving", Place.LEAVING, 0.0, {B: GIB}, charged={"/c": GIB})
    assert decide(seen(1, 7, large, small, *here, leaving)) == Wishes(), "what it takes may be counted twice"
    unread, both = (replace(each, charged={}) for each in here), {"a": present(c1=4), "b": present(c2=3)}
    assert decided(HostRoom(Memory(node=6)), view(1, large, small, *unread), both) == (Wishes(back=("small",)), {})


def test_those_that_leave_a_gpu_which_is_not_looked_at_count() -> None:
    room, both = HostRoom(Memory(node=4)), {"a": present(c1=3), "b": present(c2=2)}
    assert decided(room, view(0, tenant("a", Place.HERE, 3), wished=2), both)[0].leave == ("a",)
    elsewhere = View(1000.0, {B: Room(0, wished=GIB)}, (Tenant("b", Place.HERE, 0.0, {B: 2 * GIB}),))
    for place, leave in ((Place.LEAVING, ()), (Place.AWAY, ("b",))):
        both["a"].known = Known(began=0.0, place=place)
        assert decided(room, elsewhere, both)[0].leave == leave


def test_host_memory_is_read_only_for_those_that_would_leave() -> None:
    memory = Memory(c1=9, c2=9)
    room, both = HostRoom(memory), {"a": present(c1=3), "b": present(c2=5)}
    views = tenant("a", Place.HERE, 3), tenant("b", Place.HERE, 5)
    assert decided(room, view(4, *views), both)[0].leave == ()
    assert memory.read == []
    wishes, short = decided(room, view(0, *views, wished=2), both)
    assert (wishes.leave, short, memory.read) == (("a",), {}, ["c1", "all"])


def test_what_all_processes_of_a_tenant_hold_adds_up_in_each_cgroup() -> None:
    here, held = tenant("a", Place.HERE, 6), {"a": present(c1=2, c1_b=1, c2=3)}
    assert decided(HostRoom(Memory(c1=3, c2=3, all=6)), view(0, here, wished=2), held)[0].leave == ("a",)
    for rests, where in (({"c1": 2.9}, "/c1"), ({"c2": 2.9}, "/c2"), ({"all": 5.9}, "/all")):
        wishes, short = decided(HostRoom(Memory(**rests)), view(0, here, wished=2), held)
        assert wishes.leave == ()
        assert f"its cgroup {where} has {next(iter(rests.values())):.2f} GiB left" in short["a"]
    wishes, short = decided(HostRoom(Memory(node=5.5)), view(0, here, wished=2), held)
    assert "6.00 GiB of it would move to host memory, and the node can give 5.50 GiB more" in short["a"]


def test_who_leaves_counts_until_it_has_left() -> None:
    room, held = HostRoom(Memory(node=4)), {"a": present(c1=3), "b": present(c2=3)}
    both = tenant("a", Place.HERE, 3), tenant("b", Place.HERE, 3)
    assert decided(room, view(0, *both, wished=5), held)[0].leave == ("a",)
    leaving = replace(both[0], place=Place.LEAVING)
    assert decided(room, view(0, leaving, both[1], wished=5), held) == (decide(view(0, leaving, wished=3)), {})
    assert decided(HostRoom(Memory(node=4)), view(0, leaving, both[1], wished=5), held)[0].leave == (), "of a new agent"
    away = replace(both[0], place=Place.AWAY)
    assert decided(room, view(3, away, both[1], wished=5), held)[0].leave == ("b",)


def test_cgroups_that_nobody_can_see_stop_nobody() -> None:
    here, held = tenant("a", Place.HERE, 3), {"a": present(**{"c-1": 3})}
    assert decided(HostRoom(Memory()), view(0, here, wished=2), held)[0].leave == ("a",)
    assert decided(HostRoom(None), view(0, here, wished=2), held)[0].leave == ("a",)
    assert "the node can give" in decided(HostRoom(Memory(node=1)), view(0, here, wished=2), held)[1]["a"]


@pytest.mark.parametrize(("place", "step"), [
    (CONTAINER, "raise resources.limits.memory of its container"),
    (f"/{'x' * 200}{CONTAINER}", "raise resources.limits.memory of its container"),
    (POD, "raise resources.limits.memory of its pod's containers"),
    (PODS, "raise the memory limit of that cgroup, or end others in it"),
    ("/user.slice", "raise the memory limit of that cgroup, or end others in it"),
    (f"{CONTAINER}/\x1b[2J\u2028\ufffd", "raise resources.limits.memory of its container"),
])  # fmt: skip
def test_the_sentence_says_what_to_do(place: str, step: str) -> None:
    class OnePlace(Memory):
        def cgroups(self, process_id: int) -> list[Path]:
            return [Path(place)]

        def left(self, folder: Path) -> int | None:
            return GIB

    room, here = HostRoom(OnePlace()), tenant("a", Place.HERE, 3)
    sentence = decided(room, view(0, here, wished=2), {"a": present(c1=3)})[1]["a"]
    assert sentence.endswith(f"has 1.00 GiB left: {step}")
    assert sentence.isascii()
    assert sentence.isprintable()
    assert "3.00 GiB" in sentence
    assert len(sentence) < 400


def test_who_refuses_keeps_room_only_while_others_need_it() -> None:
    refuses = tenant("a", Place.HERE, 3, refused_until=1e9)

    def kept(seen: View) -> set[str]:
        return who_keep_room(seen, decide(seen), {"a"})

    assert kept(view(0, refuses, wished=2)) == {"a"}
    assert kept(view(0, refuses, reserve=2)) == {"a"}
    assert kept(view(4, refuses, wished=2, reserve=2)) == set()
    assert kept(view(0, refuses, tenant("b", Place.HERE, 2), wished=2)) == set(), "another one leaves instead"
    assert kept(view(0, refuses, wished=4)) == set(), "it would not suffice"
    assert kept(view(0, refuses, tenant("b", Place.AWAY, 3))) == set(), "it has had no more than the other one"
    assert kept(view(0, replace(refuses, clock=9), tenant("b", Place.AWAY, 3))) == {"a"}
    assert kept(view(0, replace(refuses, lacks={A: GIB}))) == set(), "it waits for room itself"
    assert kept(view(9, replace(refuses, is_wished_away=True))) == set(), "only a person wants it away"


def test_no_other_one_keeps_room_while_that_of_those_who_kept_it_before_suffices() -> None:
    a, b = (tenant(name, Place.HERE, held, refused_until=1e9) for name, held in (("a", 3), ("b", 2.9)))

    def kept(seen: View, *before: str) -> set[str]:
        return who_keep_room(seen, decide(seen), {"a", "b"}, before)

    assert kept(view(0, a, b, wished=2)) == {"b"}
    assert kept(view(0, a, b, wished=2), "a") == {"a"}
    assert kept(view(0, a, b, wished=4), "a") == {"a", "b"}
    assert kept(view(9, a, b, wished=2), "a") == set()
    of_another = replace(b, held={B: GIB})
    cards = {A: Room(0, wished=GIB), B: Room(0, wished=GIB)}
    assert kept(replace(view(0, a, of_another), cards=cards), "a") == {"a", "b"}


def test_who_may_be_evicted_keeps_room_before_who_may_not() -> None:
    cheap, dear = tenant("cheap", Place.HERE, 2, refused_until=1e9), tenant("dear", Place.HERE, 3, refused_until=1e9)

    def kept(wished: int, *staying: str) -> set[str]:
        seen = view(0, cheap, dear, wished=wished)
        return who_keep_room(seen, decide(seen), {"cheap", "dear"}, staying=staying)

    assert kept(2) == {"cheap"}
    assert kept(2, "cheap") == {"dear"}
    assert kept(2, "cheap", "dear") == {"cheap"}, "it is in the way, though nobody may evict it"
    assert kept(5, "cheap") == {"cheap"}, "to evict the other one alone would be of no use"


def test_a_refusal_counts_when_asking_again_is_of_no_use() -> None:
    known = Known(0.0)
    assert not known.is_due(0, RETRY)
    known.note_failure(100, RETRY)
    assert not known.is_due(159, RETRY)
    known.note_failure(161, RETRY)
    assert known.is_due(161, RETRY)
    known.note_failure(300, RETRY)
    assert not known.is_due(300, RETRY), "it was not asked for a long time, so this is another refusal"
    known.note_failure(361, RETRY, for_good=True)
    assert known.is_due(361, RETRY)
    assert not known.is_due(422, RETRY), "it may be asked again"
    known.note_failure(450, RETRY, for_good=True)
    known.move(Place.AWAY, 460)
    assert not known.is_due(460, RETRY)


def test_one_whose_reason_may_pass_is_asked_again_for_hp_for_a_short_time_only() -> None:
    known = Known(0.0)
    known.note_failure(100, RETRY, passes=True)
    assert (known.again_for_hp, known.refused_until) == (102, 160)
    known.note_failure(107, RETRY, passes=True)
    assert known.again_for_hp == 109
    known.note_failure(114, RETRY, passes=True)
    assert (known.again_for_hp, known.refused_until) == (float("inf"), 174)
    known.note_failure(180, RETRY, passes=True)
    assert known.again_for_hp == float("inf"), "asking it again has been of no use"
    known.note_failure(400, RETRY, passes=True)
    known.note_failure(401, RETRY)
    assert known.again_for_hp == float("inf")


def test_who_keeps_silent_keeps_no_room_once_nobody_has_needed_it_for_long() -> None:
    """A silent tenant is not asked again, so no wish ends that it is due."""
    known = Known(0.0)
    known.note_failure(100, RETRY)
    client: Any = object()
    known.silent[client] = ()
    known.note_need(170, RETRY, is_needed=True)
    assert known.keeps_room
    known.note_need(229, RETRY, is_needed=False)
    assert known.keeps_room
    known.note_need(230, RETRY, is_needed=False)
    assert not known.keeps_room
    known.note_need(500, RETRY, is_needed=True)
    assert known.keeps_room
