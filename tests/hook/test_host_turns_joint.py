"""A job with one process for each GPU takes turns with other be slots, and its collectives pass, in real processes."""

import time

import pytest

from tests.hook.gpu_time import Timeline, start_traced
from tests.hook.harness import Machine, figure
from tests.hook.scripted_client import Client, eventually, warm

pytestmark = pytest.mark.quiet

SECONDS = 4.0
COMPUTE_US, KERNELS, COLLECTIVE_US = 300, 4, 200


def start_rank(machine: Machine, gpu: int) -> tuple[Client, Timeline]:
    trace = machine.folder / f"trace-rank-{gpu}"
    rank = machine.start_in(
        machine.client_root("be-0", "be-0"),
        str(machine.build / "test" / "client_collective"),
        ORION_SIM_TRACE=str(trace),
        RANKS_PAGE=str(machine.folder / "ranks"),
    )
    rank.must(f"rank {gpu} 2")
    machine.until_joined(rank, gpu=gpu)
    return rank, Timeline(trace)


def reasons(machine: Machine, slot: str) -> set[str]:
    (shown,) = [each for each in machine.gpu().slots if each.name == slot]
    return {each.reason for each in shown.reasons}


def test_a_job_shares_one_of_its_gpus_by_request(machine_of_ranks: Machine) -> None:
    machine = machine_of_ranks
    ranks, timelines = zip(*(start_rank(machine, gpu) for gpu in range(2)), strict=True)
    other, timeline = start_traced(machine, "be-1")
    machine.agent.set_grant(machine.uuids[0], "be-1", request=0.5)
    warm(other, COMPUTE_US)
    for rank in ranks:
        rank.send("train 20 300 200")
    assert [rank.answer().result for rank in ranks] == [0, 0]
    other.send(f"loop {10 * SECONDS:.0f} {COMPUTE_US} 8")
    for rank in ranks:
        rank.send(f"train {round(10 * SECONDS * 1e6 / (KERNELS * COMPUTE_US + COLLECTIVE_US))} 300 200 {KERNELS}")
    eventually(lambda: "JobOnSeveralGPUs" in reasons(machine, "be-0"), "the job takes turns")
    began = time.monotonic_ns()
    eventually(lambda: time.monotonic_ns() > began + SECONDS * 1e9, "some seconds of training")
    ended = time.monotonic_ns()
    for each in (timeline, *timelines):
        eventually(lambda each=each: each.reaches(ended), "the trace is whole")  # type: ignore[misc]
    had = [each.seconds(began, ended) / SECONDS for each in (timeline, *timelines)]
    figure("GPU time of be-1 on GPU 0, and of the ranks on GPUs 0 and 1", had, "of the time")
    # The rank on GPU 0 waits for its peer at each collective, so it uses less than its turns. On a busy machine both
    # slots have less.
    assert 0.4 < had[0] / (had[0] + had[1]) < 0.75
    assert min(had[1:]) > 0.2, "the job advances on both GPUs"
