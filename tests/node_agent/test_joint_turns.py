"""Turns of jobs that use several GPUs: the windows on which GPUs agree, and turns of two GPUs around them."""

from collections.abc import Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.sharing.accounts import Demand
from orion.node_agent.sharing.joint import Agreement, Window, room, windows
from orion.node_agent.sharing.turns import Turns
from orion.planning.sharing.due import due

MS = 1_000_000
STEP_NS = MS // 2
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
    agreement.note("GPU-0", {"job": 0.5})
    assert agreement.windows("GPU-0") == {}
    agreement.note("GPU-1", {"job": 1.0})
    assert agreement.windows("GPU-0") == agreement.windows("GPU-1") == {"job": Window(0.0, 0.5)}
    assert agreement.windows("GPU-2") == {}
    agreement.note("GPU-1", {})
    assert agreement.windows("GPU-0") == {}


def test_other_slots_have_the_longest_time_beside_the_windows() -> None:
    assert room({}) == Window(0.0, 1.0)
    assert room({"a": Window(0.0, 0.3), "b": Window(0.3, 0.5)}) == Window(0.5, 1.0)
    assert room({"b": Window(0.7, 0.9)}) == Window(0.0, 0.7)


class Node:
    """Two GPUs with a job on both, slot `be-0`, and other slots; all always have work but those in `idle`."""

    def __init__(self, *requests: dict[str, float]) -> None:
        self.requests = requests
        self.turns = [Turns() for _ in requests]
        self.agreement = Agreement()
        self.now = 1_000_000 * MS
        self.idle: set[tuple[int, str]] = set()

    def look(self) -> None:
        for number, turns in enumerate(self.turns):
            demands = {
                name: Demand(request, launched=working, waiting=working)
                for name, request in self.requests[number].items()
                for working in [(number, name) not in self.idle]
            }
            agreed = self.agreement.windows(GPUS[number])
            turns.look(self.now, 1.0, demands, windows={"be-0": agreed["job"]} if agreed else {})
            self.agreement.note(GPUS[number], {"job": due(turns.accounts.claims())["be-0"]})

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
