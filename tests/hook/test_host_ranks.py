"""A job with one process for each GPU: its collectives pass on all GPUs or on none, as within one process."""

import pytest

from tests.hook.harness import record_word
from tests.hook.job_of_ranks import Job, expect_to_be_held
from tests.hook.scripted_client import LONG_ENOUGH_TO_SEE, MILLISECOND, Client, busy, eventually

pytestmark = pytest.mark.quiet


@pytest.mark.parametrize("whose", [0, 1])
def test_a_collective_is_held_on_every_gpu_while_hp_is_busy_on_one(job: Job, whose: int) -> None:
    job.warm()
    expect_to_be_held(job, whose)


def test_compute_goes_on_where_hp_is_idle(job: Job) -> None:
    job.warm()
    for _ in range(8):
        job.ranks[0].must("compute 0 20000")
    job.ranks[0].must("sync")
    with busy(job.hps[1], LONG_ENOUGH_TO_SEE) as launched:
        job.ranks[1].send("compute 1 200")  # the hook of this rank sees hp, and tells the other rank
        eventually(lambda: job.machine.state_of(job.ranks[1], gpu=1) == "gated", "the rank waits for hp")
        job.ranks[0].must("compute 0 20000")
        for rank in job.ranks:
            rank.send("collective 200")
    assert [rank.answer().result for rank in (job.ranks[1], *job.ranks)] == [0, 0, 0]
    job.traced()
    end = launched.began + (LONG_ENOUGH_TO_SEE - 5) * MILLISECOND
    assert job.milliseconds("compute", 0, launched.began, end) > 19
    for gpu in range(2):
        assert job.milliseconds("collective", gpu, launched.began, end) == 0


def test_a_collective_waits_off_the_gpu_for_a_peer_that_still_computes(job: Job) -> None:
    job.all("train 40 200 100")
    for _ in range(8):
        job.all("meet 100")
    job.traced()
    job.ranks[1].send("compute 1 200000")
    job.ranks[1].send("meet 100")
    job.wait_for_compute(0, job.ranks[0].must("compute 0 200").began)
    job.ranks[0].must("meet 100")
    with busy(job.hps[0], 50) as launched:
        pass
    assert [job.ranks[1].answer().result for _ in range(2)] == [0, 0]
    job.traced()
    began, ended = launched.began, launched.began + 50 * MILLISECOND
    assert job.milliseconds("compute", 1, began, ended) > 49, "the peer computes meanwhile"
    assert job.milliseconds("meeting", 0, began, ended) == 0, "the collective spins beside hp"
    computed = max(end for begin, end in job.ran("compute", 1) if begin < ended)
    begins = [next(begin for begin, end in job.ran("meeting", gpu) if end > ended) for gpu in range(2)]
    assert min(begins) > computed - MILLISECOND


def test_a_collective_that_waits_for_its_peer_takes_no_room_for_other_work(job: Job) -> None:
    """Without hp the GPU of rank 1 holds nothing back, so its program may launch on while a collective waits.

    The launches have room if the hook expects them to be short. On a busy machine it may have measured one as too long.
    """
    job.hps[1].kill()
    job.machine.until(job.hps[1], "", gpu=1)
    for _ in range(12):
        job.ranks[1].must("compute 1 200")
        job.ranks[1].must("meet 100")
        job.ranks[0].must("compute 0 30000")
        job.ranks[0].must("meet 100")
        job.all("sync")
    eventually(lambda: 0 < counts_as(job.ranks[1], "compute 1 200") < MILLISECOND, "the hook knows how long it takes")
    job.ranks[1].must("meet 100")
    launched = [job.ranks[1].must("compute 1 200") for _ in range(8)]
    assert launched[-1].ended - launched[0].began < 500 * MILLISECOND
    job.ranks[0].must("meet 100")
    job.all("sync")


def counts_as(rank: Client, launch: str) -> int:
    """Return for how many nanoseconds a launch counts; 0: it was complete too soon."""
    rank.must(launch)
    counted = record_word(rank, "in_flight_ns")
    rank.must("sync")
    return counted


def test_ranks_with_different_collectives_wait_for_a_bounded_time(job: Job) -> None:
    """The collectives of one rank are not those of the other, as in groups, so a rank would wait for ever."""
    job.warm()
    before = job.count(0)
    for _ in range(20):
        job.ranks[0].send("apart 0 100")
    eventually(lambda: job.count(0) == before + 20, "the collectives run", 10)
    for _ in range(20):
        assert job.ranks[0].answer().result == 0


def test_collectives_pass_between_alternating_busy_periods_of_two_hps(job: Job) -> None:
    job.warm()
    for index, hp in enumerate(job.hps):
        hp.send(f"serve 60 3000 {20000 + 1700 * index} 1")
    job.all("train 200 300 200")
    job.traced()
    assert job.count(0) == job.count(1) == 240
    for hp in job.hps:
        assert hp.answer().result == 60
