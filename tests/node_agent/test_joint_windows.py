"""The windows on which GPUs agree for the jobs that use several of them, and the gaps between windows."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.node_agent.sharing.around_windows import fill, gaps, origin
from orion.node_agent.sharing.joint import Agreement, Window, windows
from tests.node_agent.joint_node import GPUS, MS


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
    agreement.windows("GPU-0", 0)
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


def test_the_gaps_between_windows_are_those_of_a_cycle_that_begins_with_a_window() -> None:
    assert gaps([]) == gaps([Window(0.0, 0.0)]) == [Window(0.0, 1.0)]
    assert gaps([Window(0.0, 0.25), Window(0.25, 0.5), Window(0.25, 0.5)]) == [Window(0.5, 1.0)]
    assert gaps([Window(0.5, 0.75)]) == [Window(0.25, 1.0)]
    assert origin([Window(0.5, 0.75)]) == 0.5
    assert gaps([Window(0.0, 0.25), Window(0.5, 0.75)]) == [Window(0.25, 0.5), Window(0.75, 1.0)]
    assert gaps([Window(0.0, 1.0)]) == []


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=5),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 30)),
    st.frozensets(st.sampled_from("abcdef")),
)
def test_turns_lie_in_gaps(layout: list[tuple[int, int]], lengths: dict[str, int], growing: frozenset[str]) -> None:
    spaces, at = list[tuple[int, int]](), 0
    for before, length in layout:
        spaces.append((at + before, at + before + length))
        at = spaces[-1][1]
    turns = fill(spaces, lengths, growing, 2)
    for (_, first), (second, _) in pairwise(sorted(turns.values())):
        assert first <= second
    for begin, end in turns.values():
        assert any(space[0] <= begin <= end <= space[1] for space in spaces)
    if spaces and sum(lengths.values()) <= max(end - begin for begin, end in spaces):
        assert all(turns[name][1] - turns[name][0] >= length for name, length in lengths.items())
