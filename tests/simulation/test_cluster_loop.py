"""One small cluster at a time: what a move costs, what hp load does to training, and when the run ends."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orion.errors import Conflict, Invalid, Unreadable
from orion.planning.queues.demands import Profile
from orion.planning.queues.resources import Server
from orion.simulation.cluster import clusters, loop
from orion.simulation.cluster.jobs import Job
from orion.simulation.cluster.loop import Outcome
from orion.simulation.cluster.rules import Rules
from orion.simulation.cluster.schedulers import Scheduler, known, parse

PROFILES = {"m": Profile("m", iteration_s=1.0, cpus=1.0, memory_gb=1.0, speed=1.0)}
SERVER = Server(1, 3.0, 62.5, 62.5)


def run(jobs: Sequence[Job], text: str = "", policy: str = "FIFO", cost_s: float = 0.0, count: int = 1) -> Outcome:
    rules = Rules(restart_cost_s=cost_s)
    servers_at = read(text).at(rules.round_s) if text else lambda now_s: (SERVER,) * count
    return loop.run(jobs, PROFILES, servers_at, Scheduler(policy, "fair"), rules)


def read(text: str) -> clusters.Cluster:
    return clusters.from_yaml(Path("cluster.yaml"), text)


def finish_s(outcome: Outcome) -> list[float]:
    return outcome.ledger.finish_s.tolist()


def test_a_job_ends_when_its_work_ends_and_the_next_begins_with_a_round() -> None:
    outcome = run([Job(0, "m", 0, 450, 1), Job(1, "m", 1, 100, 1)])
    assert finish_s(outcome) == [450, 700]
    assert outcome.ledger.start_s.tolist() == [0, 600]


def test_a_pause_costs_a_restart_and_a_first_start_does_not() -> None:
    jobs = [Job(0, "m", 0, 1000, 1), Job(1, "m", 10, 300, 1)]
    outcome = run(jobs, policy="SRTF", cost_s=30)
    assert finish_s(outcome) == [1330, 600]
    assert outcome.ledger.restarts.tolist() == [1, 0]


def test_a_running_job_keeps_its_gpu_if_a_pause_costs_more_than_it_gains() -> None:
    jobs = [Job(0, "m", 0, 1000, 1), Job(1, "m", 10, 680, 1)]
    assert run(jobs, policy="SRTF", cost_s=30).ledger.restarts.tolist() == [0, 0]
    assert run(jobs, policy="SRTF", cost_s=10).ledger.restarts.tolist() == [1, 0]


@pytest.mark.parametrize(("policy", "most"), [("LAS", 6), ("DRF", 6), ("FTF", 8)])
def test_equal_jobs_take_turns_of_many_pauses(policy: str, most: int) -> None:
    jobs = [Job(number, "m", 0, 20_000, 1) for number in range(2)]
    free, costly = (run(jobs, policy=policy, cost_s=cost_s) for cost_s in (0, 60))
    assert free.ledger.restarts.sum() > 50
    assert 2 <= costly.ledger.restarts.sum() <= most * 2
    lost_s = 60 * costly.ledger.restarts.sum()
    assert lost_s <= 40_000 / 40
    assert max(finish_s(costly)) == pytest.approx(40_000 + lost_s, abs=600)


def test_a_gap_without_jobs_ends_with_the_last_arrival() -> None:
    assert finish_s(run([Job(0, "m", 0, 100, 1), Job(1, "m", 100_000, 100, 1)])) == [100, 100_300]


@pytest.mark.parametrize(
    ("hp", "speed"),
    [
        ("busy: 0.35", 0.65),
        ("busy: 0.35, busyPeriods: 49, switch: 0.30ms", 1 - 0.35 - 49 * 0.0003),
        ("busy: 0.35, busyPeriods: 49, slowdown: 1.2", (1 - 0.35 - 49 * 0.0003) / 1.2),
        ("busyCurve: [[0, 0.5]]", 0.5),
    ],
)
def test_a_job_beneath_hp_has_the_speed_of_the_formula(hp: str, speed: float) -> None:
    outcome = run([Job(0, "m", 0, 10_000, 1)], f"servers: [{{gpus: 1, cpus: 3, memory: 62, hp: {{{hp}}}}}]")
    assert finish_s(outcome) == pytest.approx([10_000 / speed])


def test_the_load_of_the_hour_holds() -> None:
    text = "servers: [{gpus: 1, cpus: 3, memory: 62, hp: {busyCurve: [[0, 0.5], [1, 1.0], [2, 0.0]]}}]"
    assert finish_s(run([Job(0, "m", 0, 2800, 1)], text)) == [7200 + 1000]


def test_a_job_over_several_gpus_runs_as_fast_as_the_slowest() -> None:
    text = "servers: [{gpus: 1, cpus: 3, memory: 62}, {gpus: 1, cpus: 3, memory: 62, hp: {busy: 0.5}}]"
    assert finish_s(run([Job(0, "m", 0, 3000, 2)], text)) == [6000]


def test_hp_memory_keeps_jobs_away() -> None:
    text = "servers: [{gpus: 1, cpus: 3, memory: 62, hp: {busy: 0.1, freeMemory: 10}}, {gpus: 1, cpus: 3, memory: 62}]"
    cluster = read(text)
    assert (cluster.most_gpus(5.0), cluster.most_gpus(20.0)) == (2, 1)


@pytest.mark.parametrize(("gpus", "is_refused"), [(1, False), (2, True)])
def test_hp_that_leaves_almost_nothing_is_named(gpus: int, is_refused: bool) -> None:
    text = "servers: [{gpus: 1, cpus: 3, memory: 62}, {gpus: 1, cpus: 3, memory: 62, hp: {busy: 0.9999999}}]"
    jobs = [Job(5, "m", 0, 3600, gpus)]
    if not is_refused:
        assert finish_s(run(jobs, text)) == [3600]
        return
    with pytest.raises(Conflict, match=r"job 5 would take .* years: hp leaves training 1e-07 .* server 2"):
        run(jobs, text)


def test_an_hour_without_hp_is_enough() -> None:
    text = "servers: [{gpus: 1, cpus: 3, memory: 62, hp: {busyCurve: [[0, 1], [3.5, 0], [4, 1]]}}]"
    assert finish_s(run([Job(0, "m", 0, 3000, 1)], text)) == [86400 + 4 * 3600 - 600]


def test_jobs_that_no_round_can_run_end_the_run() -> None:
    with pytest.raises(Conflict, match="job 0"):
        run([Job(0, "m", 0, 100, 1)], "servers: [{gpus: 1, cpus: 3, memory: 62, hp: {busy: 1.0}}]")


def test_a_job_that_would_take_millions_of_rounds_is_named() -> None:
    with pytest.raises(Conflict, match=r"job 1 .*--round"):
        run([Job(0, "m", 0, 100, 1), Job(1, "m", 0, 1e15, 1)])


def test_an_iteration_longer_than_a_round_is_named_in_the_compatible_mode() -> None:
    jobs, rules = [Job(7, "m", 0, 100, 1)], Rules(round_s=0.5, restart_cost_s=0, is_compatible=True)
    with pytest.raises(Conflict, match="an iteration of job 7"):
        loop.run(jobs, PROFILES, lambda now_s: (SERVER,), Scheduler("FIFO", "fair"), rules)


def test_a_best_that_no_server_with_the_gpu_memory_can_give_becomes_the_fair_share() -> None:
    text = """servers:
      - {gpus: 4, cpus: 12, memory: 250, hp: {busy: 0.5, freeMemory: 20}}
      - {gpus: 1, cpus: 3, memory: 62.5}"""
    profiles = {"m": Profile("m", 1.0, cpus=12.0, memory_gb=62.5, speed=2.0, gpu_memory_gb=40.0)}
    outcome = loop.run(
        [Job(0, "m", 0, 100, 1)], profiles, read(text).at(300.0), Scheduler("FIFO", "greedy"), Rules(restart_cost_s=0)
    )
    assert finish_s(outcome) == [100]


def test_jobs_of_opt_without_room_hold_back_none_that_has_room() -> None:
    points: dict[str, Any] = {"cpu_points": (3.0, 6.0), "memory_points_gb": (62.5, 125.0)}
    profiles = {
        "large": Profile("large", 1, 6, 125, 2, gpu_memory_gb=40, speeds=((1.0, 1.5), (1.4, 2.0)), **points),
        "small": Profile("small", 1, 3, 62.5, 1, speeds=((1.0, 1.0), (1.0, 1.0)), **points),
    }
    text = """servers:
      - {gpus: 2, cpus: 6, memory: 125}
      - {gpus: 4, cpus: 24, memory: 375, hp: {busy: 0.5, freeMemory: 20}}"""
    jobs = [Job(number, model, 0, 1000, 1) for number, model in enumerate(["large"] * 5 + ["small"] * 2)]
    rules, servers_at = Rules(restart_cost_s=0), read(text).at(300.0)
    outcome = loop.run(jobs, profiles, servers_at, Scheduler("FIFO", "opt"), rules)
    assert outcome.ledger.start_s[[0, 1, 5, 6]].tolist() == [0, 0, 0, 0]


def test_opt_solves_again_for_as_many_gpus_of_other_servers() -> None:
    points: dict[str, Any] = {"cpu_points": (3.0, 6.0), "memory_points_gb": (62.5, 125.0)}
    profiles = {"m": Profile("m", 1, 6, 62.5, 2, speeds=((1.0, 1.0), (2.0, 2.0)), **points)}
    text = """servers:
      - {gpus: 2, cpus: 6, memory: 125, hp: {busyCurve: [[0, 0], [1, 1]]}}
      - {gpus: 2, cpus: 12, memory: 125, hp: {busyCurve: [[0, 1], [1, 0]]}}"""
    jobs = [Job(number, "m", 0, 30_000, 1) for number in range(2)]
    rules, servers_at = Rules(restart_cost_s=0), read(text).at(300.0)
    outcome = loop.run(jobs, profiles, servers_at, Scheduler("FIFO", "opt"), rules)
    assert outcome.bounds[11:13] == [2, 4]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("servers: [{gpus: 0, cpus: 3, memory: 1}]", "servers[0].gpus"),
        ("servers: [{gpus: 1, cpus: .nan, memory: 1}]", "servers[0].cpus"),
        ("servers: [{gpus: 1, cpus: 3, memory: 1, hp: {}}]", "either busy or busyCurve"),
        ("servers: [{gpus: 1, cpus: 3, memory: 1, hp: {busy: 1.5}}]", "less than or equal to 1"),
        ("servers: [{gpus: 1, cpus: 3, memory: 1, hp: {busyCurve: [[5, 0.1], [3, 0.1]]}}]", "ascend"),
        ("servers: [{gpus: 1, cpus: 3, memory: 1, hp: {busy: 0.5, switch: soon}}]", "duration"),
        ("servers: [{gpus: 1, cpus: 3, memory: 1, ram: 3}]", "there are count, gpus, cpus, memory, storage, gpu, hp"),
        ("servers: []", "servers"),
        ("servers: [", "line 1"),
        ("servers: \0", "no YAML"),
        ("servers: [{gpus: 2023-02-30}]", "no YAML"),
        ("[" * 5000, "no YAML"),
    ],
)
def test_a_wrong_cluster_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=r"^cluster\.yaml") as caught:
        read(text)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_of_schedulers() -> None:
    assert list(map(str, parse("srtf+tune, FIFO", is_compatible=False))) == ["SRTF+tune", "FIFO+greedy"]
    assert len(known(is_compatible=False)) == 32
    assert len(known(is_compatible=True)) == 6 * 3 + 2
    for wrong in ("SRSF+fair", "LAS+opt", "FIFO-STRICT+fair", "FIFO+fast", ""):
        with pytest.raises(Invalid):
            parse(wrong, is_compatible=True)
