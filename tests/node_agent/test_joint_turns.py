"""Turns of jobs that use several GPUs: the windows on which GPUs agree, and turns of two GPUs around them."""

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.sharing.account import Demand
from orion.node_agent.sharing.joint import Agreement, Window, room, windows
from orion.node_agent.sharing.turns import Turns
from orion.planning.sharing.due import due

MS = 1_000_000
STEP_NS = MS // 2
HANDOVER_NS = MS // 5
GPUS = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "d"]),
        st.dictionaries(st.sampled_from(GPUS), st.floats(0, 1), min_size=1),
    )
)
def test_jobs_that_share_a_gpu_have_different_times(jobs: dict[str, dict[str, float]]) -> None:
    found = windows(jobs)
    for window in found.values():
        assert 0 <= window.begin <= window.end <= 1 + 1e-9
    for (one, first), (other, second) in combinations(found.items(), 2):
        if jobs[one].keys() & jobs[other].keys():
            assert first.end <= second.begin + 1e-9 or second.end <= first.begin + 1e-9
    for job, window in found.items():
        assert window.end - window.begin <= min(part for part in jobs[job].values() if part > 0) + 1e-9


def test_a_window_is_what_the_job_is_due_on_its_most_wanted_gpu() -> None:
    assert windows({"job": {"GPU-0": 0.5, "GPU-1": 0.25}}) == {"job": Window(0.0, 0.25)}
    assert windows({"job": {"GPU-0": 0.0, "GPU-1": 0.25}}) == {"job": Window(0.0, 0.25)}  # it computes on one GPU only
    assert windows({"job": {"GPU-0": 0.5}}) == {}
    assert windows({"job": {"GPU-0": 0.0, "GPU-1": 0.0}}) == {}


def test_gpus_agree_by_what_each_of_them_notes() -> None:
    agreement = Agreement()
    agreement.note("GPU-0", {"job": 0.5}, slots=2)
    assert agreement.windows("GPU-0", 0) == {}
    agreement.note("GPU-1", {"job": 1.0}, slots=1)
    assert agreement.windows("GPU-0", 0) == agreement.windows("GPU-1", 0) == {"job": Window(0.0, 0.5)}
    assert agreement.windows("GPU-2", 0) == {}
    agreement.note("GPU-1", {}, slots=1)
    assert agreement.windows("GPU-0", 0) == {}


@pytest.mark.parametrize(("slots", "cycle_ms"), [(0, 40), (8, 40), (9, 80), (16, 80), (17, 160), (64, 320)])
def test_with_many_slots_joint_cycles_are_longer(slots: int, cycle_ms: int) -> None:
    agreement = Agreement()
    agreement.note("GPU-0", {"job": 0.5}, slots)
    agreement.note("GPU-1", {"job": 0.5}, slots=2)
    assert agreement.cycle_ns == cycle_ms * MS


def test_a_job_without_progress_has_windows_in_every_second_four_seconds_only() -> None:
    agreement = Agreement()
    for gpu in GPUS[:2]:
        agreement.note(gpu, {"job": 0.5}, slots=2)
    granted = []
    for second in range(0, 18, 2):
        found = [agreement.windows(gpu, second * 1_000 * MS)["job"].length for gpu in GPUS[:2]]
        assert found[0] == found[1]
        granted.append(found[0] > 0)
    assert granted == [True, True, False, False, True, True, False, False, True]
    agreement.progressed("job", 19_000 * MS)
    assert agreement.windows("GPU-1", 19_500 * MS)["job"].length


def test_unrelated_jobs_keep_their_time() -> None:
    pairs = {"a": ("GPU-0", "GPU-1"), "b": ("GPU-1", "GPU-2"), "c": ("GPU-0", "GPU-2")}
    jobs = {job: dict.fromkeys(gpus, 0.5) for job, gpus in pairs.items()}
    found = windows(jobs | {"d": {"GPU-3": 1.0, "GPU-4": 1.0}})
    assert found["d"] == Window(0.0, 1.0)
    assert [found[job].length for job in "abc"] == pytest.approx([1 / 3] * 3)


def test_other_slots_have_the_longest_time_beside_the_windows() -> None:
    assert room([]) == Window(0.0, 1.0)
    assert room([Window(0.0, 0.3), Window(0.3, 0.5)]) == Window(0.5, 1.0)
    assert room([Window(0.7, 0.9)]) == Window(0.0, 0.7)
    assert room([Window(0.0, 1.0)]).length == 0


class Node:
    """Two GPUs with a job on both, slot `be-0`, and other slots; all always have work but those in `idle`."""

    def __init__(self, *requests: dict[str, float]) -> None:
        self.requests = requests
        self.turns = [Turns() for _ in requests]
        self.agreement = Agreement()
        self.now = 1_000_000 * MS
        self.idle: set[tuple[int, str]] = set()
        self.left = [1.0] * len(requests)
        """ The part of the time that hp leaves on each GPU. """

    def look(self) -> None:
        for number, turns in enumerate(self.turns):
            demands = {
                name: Demand(request, launched=working, waiting=working)
                for name, request in self.requests[number].items()
                for working in [(number, name) not in self.idle]
            }
            if (number, "be-0") not in self.idle:
                self.agreement.progressed("job", self.now)
            agreed = self.agreement.windows(GPUS[number], self.now)
            windows = {"be-0": agreed["job"]} if agreed else {}
            turns.look(self.now, self.left[number], demands, windows=windows, joint_ns=self.agreement.cycle_ns)
            self.agreement.note(GPUS[number], {"job": due(turns.accounts.claims())["be-0"]}, len(demands))

    def run(self, seconds: float) -> Iterator[list[set[str]]]:
        """Yield at each step who has the turn on each GPU; all slots of a GPU without plans."""
        end, next_look = self.now + seconds * 1e9, self.now
        while self.now < end:
            if self.now >= next_look:
                self.look()
                next_look = self.now + 70 * MS
            yield [
                {name for name in names if not turns.plans or turns.plans[name].has_turn(self.now)}
                for turns, names in zip(self.turns, self.requests, strict=True)
            ]
            self.now += STEP_NS


def shares(node: Node, seconds: float = 4.0) -> list[dict[str, float]]:
    """Return the parts of the time in which slots have turns; check that the job has its turns everywhere at once."""
    for _ in node.run(1.0):
        pass
    held: list[dict[str, float]] = [dict.fromkeys(names, 0.0) for names in node.requests]
    steps = seconds * 1e9 / STEP_NS
    for now in node.run(seconds):
        contended = [holders for number, holders in enumerate(now) if node.turns[number].plans]
        assert len({"be-0" in holders for holders in contended}) <= 1, "the job has the turn on one GPU only"
        for holders, parts in zip(now, held, strict=True):
            for name in holders:
                parts[name] += 1 / steps
    return held


def test_a_job_has_the_turn_on_all_of_its_gpus_at_the_same_time() -> None:
    first, second = shares(Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}))
    assert first == pytest.approx({"be-0": 1 / 3, "be-1": 2 / 3}, abs=0.03)
    assert second == pytest.approx({"be-0": 1 / 3, "be-1": 1 / 3, "be-2": 1 / 3}, abs=0.03)


def test_requests_count_beside_a_job() -> None:
    first, second = shares(Node({"be-0": 0.6, "be-1": 0.1, "be-2": 0.3}, {"be-0": 0.6, "be-1": 0.4}))
    assert first == pytest.approx({"be-0": 0.6, "be-1": 0.1, "be-2": 0.3}, abs=0.03)
    assert second == pytest.approx({"be-0": 0.6, "be-1": 0.4}, abs=0.03)


def test_where_nobody_competes_with_the_job_it_is_never_held() -> None:
    first, second = shares(Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0}))
    assert first == pytest.approx({"be-0": 0.5, "be-1": 0.5}, abs=0.03)
    assert second["be-0"] == pytest.approx(1.0)


def test_others_have_all_time_once_the_job_has_no_work_there() -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0, "be-2": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    shares(node)
    node.idle |= {(0, "be-0"), (1, "be-0")}
    first, second = shares(node)
    assert first == pytest.approx({"be-0": 0.0, "be-1": 0.5, "be-2": 0.5}, abs=0.03)
    assert second["be-1"] == pytest.approx(1.0, abs=0.03)


def test_the_job_gets_its_window_back_after_a_pause() -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    shares(node)
    for number, turns in enumerate(node.turns):
        node.idle.add((number, "be-0"))
        turns.hand_back("be-0", node.now)
    shares(node, 0.5)
    node.idle.clear()
    for turns in node.turns:
        turns.ask("be-0", node.now)
    first, second = shares(node)
    assert first == second == pytest.approx({"be-0": 0.5, "be-1": 0.5}, abs=0.03)


def test_a_slot_that_comes_beside_a_job_that_had_its_gpus_alone_gets_its_part() -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0})
    node.idle.add((0, "be-1"))
    shares(node, 0.5)
    assert node.agreement.windows("GPU-0", node.now)["job"] == Window(0.0, 1.0)
    node.idle.clear()
    first, _ = shares(node)
    assert first == pytest.approx({"be-0": 0.5, "be-1": 0.5}, abs=0.03)


def test_windows_leave_no_debts() -> None:
    node = Node({"be-0": 0.5, "be-1": 0.3, "be-2": 0.1}, {"be-0": 0.0, "be-1": 0.7})
    shares(node, 30.0)
    for turns in node.turns:
        assert all(abs(account.balance_ns) < 20 * MS for account in turns.accounts.values())


@pytest.mark.parametrize(("others", "request_of_job", "useful"), [(8, 0.9, 0.05), (30, 0.5, 0.35), (60, 0.5, 0.35)])
def test_many_slots_beside_a_job_can_use_most_of_their_time(others: int, request_of_job: float, useful: float) -> None:
    slots = {"be-0": request_of_job} | {f"be-{number}": 0.0 for number in range(1, others + 1)}
    node = Node(slots, {"be-0": request_of_job})
    for _ in node.run(2.0):
        pass
    used = dict.fromkeys(slots, 0.0)
    begin = node.now
    for _ in range(60):
        node.look()
        for name, plan in node.turns[0].plans.items():
            span = node.now, node.now + 70 * MS
            used[name] += max(0, plan.time(*span) - HANDOVER_NS * plan.begun(*span))
        node.now += 70 * MS
    parts = [used[name] / (node.now - begin) for name in slots if name != "be-0"]
    assert sum(parts) > useful
    assert min(parts) > 0.5 * useful / others


def test_two_slots_of_a_job_on_one_gpu_share_its_window() -> None:
    agreement, gpus = Agreement(), (Turns(), Turns())
    requests = ({"be-0": 0.1, "be-1": 0.8, "be-2": 0.0}, {"be-0": 0.0})
    now, had = 1_000_000 * MS, 0.0
    for step in range(60):
        for number, (turns, slots) in enumerate(zip(gpus, requests, strict=True)):
            agreed = agreement.windows(GPUS[number], now).get("job")
            agreement.progressed("job", now)
            demands = {name: Demand(request, launched=True, waiting=True) for name, request in slots.items()}
            windows = {name: agreed for name in slots if name != "be-2"} if agreed else {}
            turns.look(now, 1.0, demands, windows=windows, joint_ns=agreement.cycle_ns)
            parts = due(turns.accounts.claims())
            agreement.note(GPUS[number], {"job": sum(parts[name] for name in slots if name != "be-2")}, len(slots))
        if step >= 20:
            had += gpus[0].plans["be-2"].time(now, now + 70 * MS) / (40 * 70 * MS)
        now += 70 * MS
    assert had == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("hp_seconds", [0.1, 0.3, 0.5, 2.0, 5.0, 10.0])
def test_a_job_goes_on_after_hp_was_busy_on_one_of_its_gpus(hp_seconds: float) -> None:
    node = Node({"be-0": 0.0, "be-1": 0.0}, {"be-0": 0.0, "be-1": 0.0})
    progressed = False
    real = node.agreement.progressed
    node.agreement.progressed = lambda job, now_ns: None  # type: ignore[method-assign]
    began, last, longest = node.now, node.now, 0
    for now in node.run(hp_seconds + 20.0):
        busy = 3_000 * MS <= node.now - began < (3_000 + hp_seconds * 1_000) * MS
        node.left[1] = 0.0 if busy else 1.0
        progressed = not busy and all("be-0" in holders for holders in now)
        if progressed:
            real("job", node.now)
            last = node.now
        elif not busy:
            longest = max(longest, node.now - max(last, began + round((3_000 + hp_seconds * 1_000) * MS)))
    assert longest < 4_200 * MS
