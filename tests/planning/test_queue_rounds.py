"""Properties of one round: nothing is given out twice, and the same question has the same answer."""

from collections.abc import Sequence
from functools import partial
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orion.planning.queues import compatible, continuing, demands, optimal, placement
from orion.planning.queues.demands import Profile
from orion.planning.queues.placement import FROM_EMPTY, Placed, Wish
from orion.planning.queues.resources import Server

SERVER = Server(8, 24.0, 500.0, 500.0)
POINTS = {"cpu_points": (1.0, 3.0, 6.0, 12.0), "memory_points_gb": (20.0, 62.5, 125.0)}
PROFILES = [
    Profile("light", 1.0, 1, 20.0, 1.0, 20.0, speeds=((1.0,) * 3,) * 4, **POINTS),  # type: ignore[arg-type]
    Profile("odd", 1.0, 1, 125.0, 1.5, 125.0, speeds=((0.5, 1.0, 1.5),) * 4, **POINTS),  # type: ignore[arg-type]
    Profile(
        "cpus", 1.0, 12, 62.5, 2.0, 60.0,
        speeds=((0.3, 0.4, 0.4), (0.9, 1.0, 1.0), (1.2, 1.5, 1.5), (1.5, 2.0, 2.0)), **POINTS,  # type: ignore[arg-type]
    ),
    Profile(
        "memory", 1.0, 6, 125.0, 2.5, 125.0,
        speeds=((0.1, 0.4, 0.4), (0.1, 1.0, 1.2), (0.1, 1.2, 2.5), (0.1, 1.2, 2.5)), **POINTS,  # type: ignore[arg-type]
    ),
]  # fmt: skip


def wishes_of(kinds: Sequence[tuple[int, int]]) -> list[Wish]:
    known = {}
    for profile, gpus in kinds:
        if (profile, gpus) not in known:
            fair = demands.fair_share(gpus, SERVER, SERVER.storage_mbps / SERVER.gpus)
            best = demands.largest_use(PROFILES[profile], gpus, SERVER, fair)
            known[profile, gpus] = fair, best, demands.choices(PROFILES[profile], gpus, SERVER, fair)
    return [Wish(job, *known[kind]) for job, kind in enumerate(kinds)]


def first_of(wishes: Sequence[Wish], gpus: int) -> list[int]:
    chosen: list[int] = compatible.first_by_gpus(np.array([wish.fair.gpus for wish in wishes]), gpus).tolist()
    return chosen


def check(placed: Placed, servers: Sequence[Server]) -> None:
    """No server gives out more than it has, and each job has all of its GPUs."""
    for index, server in enumerate(servers):
        here = [(count, demand) for parts, demand in placed.values() for at, count in parts if at == index]
        assert sum(count for count, _ in here) <= server.gpus
        for name in ("cpus", "memory_gb", "storage_mbps"):
            assert sum(n * getattr(d, f"{name}_per_gpu") for n, d in here) <= getattr(server, name) * (1 + 1e-9)
    for parts, demand in placed.values():
        assert sum(count for _, count in parts) == demand.gpus
        assert len({server for server, _ in parts}) == len(parts)


KINDS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 1, 1, 2, 3, 4, 8, 12])), max_size=40)
MECHANISMS = st.sampled_from(sorted(FROM_EMPTY))


@given(KINDS, st.integers(1, 4), MECHANISMS, st.booleans())
def test_a_round_from_an_empty_cluster_gives_out_no_more_than_there_is(
    kinds: list[tuple[int, int]], count: int, mechanism: str, is_packed: bool
) -> None:
    servers, wishes = (SERVER,) * count, wishes_of(kinds)
    placed = FROM_EMPTY[mechanism](wishes, servers, is_packed=is_packed)
    check(placed, servers)
    assert placed == FROM_EMPTY[mechanism](wishes, servers, is_packed=is_packed)


@given(KINDS, st.integers(1, 3), MECHANISMS, st.booleans(), st.integers(0, 2**32), st.booleans(), st.booleans())
def test_rounds_that_continue_give_out_no_more_than_there_is(
    kinds: list[tuple[int, int]],
    count: int,
    mechanism: str,
    is_packed: bool,
    seed: int,
    is_strict: bool,
    has_speeds: bool,
) -> None:
    slow = Server(8, 24.0, 500.0, 500.0, speed=0.5)
    servers: tuple[Server, ...] = (SERVER,) * count + (slow,) * has_speeds
    wishes, random, before = wishes_of(kinds), Random(seed), None
    for _ in range(5):
        random.shuffle(wishes)
        decide = partial(continuing.decide, is_strict=is_strict, is_packed=is_packed)
        standing = decide(wishes, before, servers, mechanism)
        check(standing.placed, servers)
        again = decide(list(wishes), before, servers, mechanism)
        assert standing.placed == again.placed
        before = standing
        wishes = [wish for wish in wishes if random.random() < 0.9]
        if random.random() < 0.3:
            servers = (*servers[:-1], Server(8, 24.0, 500.0, 500.0, speed=random.choice([0.0, 0.3, 1.0])))


@given(KINDS, st.integers(1, 4))
def test_fair_shares_fit_wherever_gpus_are_free(kinds: list[tuple[int, int]], count: int) -> None:
    wishes = wishes_of(kinds)
    assert list(placement.fair(wishes, (SERVER,) * count)) == first_of(wishes, 8 * count)


@given(KINDS, st.integers(1, 3), st.sampled_from(["greedy", "tune"]))
def test_jobs_that_a_caller_leaves_out_would_not_have_run(
    kinds: list[tuple[int, int]], count: int, mechanism: str
) -> None:
    wishes, out = wishes_of(kinds), set[int]()
    shrinking = (wish for wish in wishes if id(wish.best) not in out)
    servers, place = (SERVER,) * count, FROM_EMPTY[mechanism]
    placed = place(shrinking, servers, no_room=lambda demand: out.add(id(demand)))
    assert placed == place(wishes, servers)


@given(KINDS, st.integers(1, 3))
def test_the_first_jobs_run_however_jobs_ran_before(kinds: list[tuple[int, int]], count: int) -> None:
    servers, wishes = (SERVER,) * count, wishes_of(kinds)
    first = set(first_of(wishes, 8 * count))
    before = continuing.decide(wishes[::-1], None, servers, "fair")
    for mechanism in ("fair", "tune"):
        assert set(continuing.decide(wishes, before, servers, mechanism).placed) == first


def test_a_job_that_goes_on_stays_where_it_is() -> None:
    servers, wishes = (SERVER,) * 2, wishes_of([(0, 1)] * 12)
    before = continuing.decide(wishes, None, servers, "fair")
    after = continuing.decide([*wishes_of([(0, 1)] * 13)[12:], *wishes[3:]], before, servers, "fair")
    assert all(after.placed[wish.job] == before.placed[wish.job] for wish in wishes[3:])
    assert after.placed[12][0] == ((0, 1),)


def test_a_job_in_front_takes_the_gpus_of_the_last_one() -> None:
    servers, wishes = (SERVER,), wishes_of([(0, 1)] * 9)
    before = continuing.decide(wishes[:8], None, servers, "fair")
    after = continuing.decide([wishes[8], *wishes[:8]], before, servers, "fair")
    assert set(after.placed) == {0, 1, 2, 3, 4, 5, 6, 8}


def test_a_job_in_front_takes_gpus_with_enough_memory_from_jobs_behind() -> None:
    servers = (Server(1, 3.0, 62.5, 62.5), Server(1, 3.0, 62.5, 62.5, gpu_memory_gb=20.0))
    profile = Profile("large", 1.0, 3.0, 62.5, 1.0, gpu_memory_gb=40.0)
    fair = demands.fair_share(1, servers[0], 62.5, profile.gpu_memory_gb)
    first, behind = Wish(9, fair, fair), wishes_of([(0, 1)])[0]
    for mechanism in ("fair", "greedy", "tune"):
        before = continuing.decide([behind], None, servers, mechanism)
        after = continuing.decide([first, behind], before, servers, mechanism)
        assert {job: parts for job, (parts, _) in after.placed.items()} == {9: ((0, 1),), 0: ((1, 1),)}


def test_no_job_overtakes_under_a_strict_policy() -> None:
    wishes = wishes_of([(0, 4), (0, 8), (0, 1)])
    assert set(continuing.decide(wishes, None, (SERVER,), "fair", is_strict=True).placed) == {0}
    assert set(continuing.decide(wishes, None, (SERVER,), "fair").placed) == {0, 2}


def test_fast_servers_come_first_and_a_job_moves_to_one() -> None:
    slow, wishes = Server(1, 3.0, 62.5, 62.5, speed=0.5), wishes_of([(0, 1), (0, 1)])
    servers = (slow, Server(1, 3.0, 62.5, 62.5))
    before = continuing.decide(wishes, None, servers, "fair")
    assert {job: parts for job, (parts, _) in before.placed.items()} == {0: ((1, 1),), 1: ((0, 1),)}
    assert continuing.decide(wishes[1:], before, servers, "fair").placed[1][0] == ((1, 1),)


def test_a_server_where_training_stands_still_gets_no_job() -> None:
    still = Server(8, 24.0, 500.0, 500.0, speed=0.0)
    assert continuing.decide(wishes_of([(0, 1)]), None, (still,), "fair").placed == {}


def test_tune_takes_the_surplus_back_for_a_job_that_has_no_room() -> None:
    wishes = wishes_of([(2, 1), (2, 1), *[(3, 1)] * 6])
    for placed in (placement.tune(wishes, (SERVER,)), continuing.decide(wishes, None, (SERVER,), "tune").placed):
        assert set(placed) == set(range(8))
        check(placed, (SERVER,))


@given(KINDS, st.integers(1, 3))
def test_opt_stays_within_the_cluster_and_is_no_slower_than_the_fair_share(
    kinds: list[tuple[int, int]], count: int
) -> None:
    servers = (SERVER,) * count
    wishes = wishes_of(kinds)
    first = [wishes[job] for job in first_of(wishes, 8 * count)]
    choices = {wish.best: wish.choices for wish in first}
    shares = optimal.shares([list(choices).index(wish.best) for wish in first], list(choices.values()), servers)
    assert sum(each.cpus for each in shares) <= 24 * count * (1 + 1e-6)
    assert sum(each.memory_gb for each in shares) <= 500 * count * (1 + 1e-6)
    assert all(each.speed >= 1 for each in shares)
    assert all(each.gpus == wish.fair.gpus for each, wish in zip(shares, first, strict=True))


def test_opt_is_the_optimum_of_every_choice() -> None:
    wishes, small = wishes_of([(2, 1), (2, 1), (3, 1)]), Server(8, 15.0, 250.0, 500.0)
    best = max(
        sum(point.speed for point in points)
        for points in ((a, b, c) for a in wishes[0].choices for b in wishes[1].choices for c in wishes[2].choices)
        if sum(p.cpus for p in points) <= 15 and sum(p.memory_gb for p in points) <= 250
    )
    shares = optimal.shares((0, 0, 1), (wishes[0].choices, wishes[2].choices), (small,))
    assert sum(each.speed for each in shares) == pytest.approx(best)
