"""A job with one process for each GPU when ranks, hp programs or the agent die, stop or write nonsense."""

import re
import signal
from pathlib import Path

import pytest

from orion.hook import layout
from tests.hook.job_of_ranks import NOT_READY, Job, expect_to_be_held
from tests.hook.scripted_client import MILLISECOND, Client, busy, eventually

pytestmark = pytest.mark.quiet


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_stops_holds_its_peer_no_longer(job: Job, number: signal.Signals) -> None:
    job.warm()
    before = job.count(0)
    with busy(job.hps[1], 3000) as launched:
        job.ranks[1].send("compute 1 200")
        eventually(lambda: job.machine.state_of(job.ranks[1], gpu=1) == "gated", "the rank waits for hp")
        job.ranks[0].send("apart 0 200")
        job.ranks[0].heard_something(0.1)  # unless the hook holds it on the CPU, the collective waits in its stream
        job.ranks[1].kill(number)
        eventually(lambda: job.count(0) > before, "the peer continues", 2.5)
        ended = job.ran("collective", 0)[-1][1]
        job.ranks[1].kill(signal.SIGCONT)
    assert ended < launched.began + 2900 * MILLISECOND, "hp was still busy"


def test_the_peer_of_a_rank_that_died_finds_its_own_collective_late(job: Job) -> None:
    """NCCL's watchdog asks whether the collective has ended; after NCCL's timeout it aborts the collective."""
    job.warm()
    before = job.count(0)
    job.ranks[1].kill()
    job.ranks[1].reap()
    job.ranks[0].must("collective 200")
    eventually(lambda: job.count(0) > before, "the hook holds nothing")
    with busy(job.hps[0], 100):
        job.ranks[0].send("query 0")
        assert job.ranks[0].answer(0.05).result == NOT_READY
        job.ranks[0].send("collective 200")
    assert job.ranks[0].answer().result == 0
    job.ranks[0].send("query 0")
    assert job.ranks[0].answer().result == NOT_READY
    with (job.machine.folder / "ranks").open("r+b") as page:  # the abort: the collective waits for its peer no longer
        page.seek(64)
        page.write((1000).to_bytes(4, "little"))
    job.ranks[0].must("sync")
    job.ranks[0].must("end")


def test_a_rank_whose_hp_dies_releases_its_peer(job: Job) -> None:
    job.warm()
    before = job.count(0)
    job.hps[1].must("launch 1 10000000")
    job.ranks[1].send("compute 1 200")
    eventually(lambda: job.machine.state_of(job.ranks[1], gpu=1) == "gated", "the rank waits for hp")
    for rank in job.ranks:
        rank.send("collective 200")
    assert job.count(0) == job.count(1) == before
    job.hps[1].kill()
    assert [rank.answer().result for rank in (job.ranks[1], *job.ranks)] == [0, 0, 0]
    job.traced()
    assert job.count(0) == job.count(1) == before + 1


def test_ranks_stay_together_without_an_agent_and_with_the_next_one(job: Job) -> None:
    job.warm()
    for restart in (False, True):
        if restart:
            job.machine.start_agent()
            for gpu, rank in enumerate(job.ranks):
                job.machine.until_joined(rank, gpu=gpu)
                job.machine.until_joined(job.hps[gpu], gpu=gpu)
        else:
            job.machine.kill_agent()
        expect_to_be_held(job, 1)


@pytest.mark.parametrize("machine_of_ranks", [3], indirect=True)
@pytest.mark.parametrize("whose", [0, 2])
def test_a_rank_that_joins_the_next_agent_is_held_with_the_others(job: Job, whose: int) -> None:
    for gpu, rank in enumerate(job.ranks):
        for _ in range(8):
            rank.must(f"compute {gpu} 200")
            rank.must(f"apart {gpu} 100")
        rank.must("sync")
    job.machine.kill_agent()
    job.machine.start_agent()
    job.ranks.append(job.start(2))
    for gpu, rank in enumerate(job.ranks):
        job.machine.until_joined(rank, gpu=gpu)
        job.machine.until_joined(job.hps[gpu], gpu=gpu)
    job.ranks[2].must("compute 2 200")
    for _ in range(8):
        job.ranks[2].must("apart 2 100")
    job.warm()
    assert len({job_page_name(rank) for rank in job.ranks}) == 1
    expect_to_be_held(job, whose)


def test_ranks_that_are_started_again_are_held_together(job: Job) -> None:
    job.warm()
    for rank in job.ranks:
        rank.kill()
        rank.reap()
    (job.machine.folder / "ranks").write_bytes(bytes(layout.PAGE_SIZE))
    job.ranks = [job.start(gpu) for gpu in range(2)]
    job.warm()
    expect_to_be_held(job, 0)


def job_page_name(client: Client) -> bytes:
    """Return the name of the job page in a client's memory."""
    begin = job_page(client) + layout.offset(layout.PageHeader, "gpu")
    with open(f"/proc/{client.pid}/mem", "rb") as memory:
        memory.seek(begin)
        return memory.read(layout.PageHeader.gpu.size)


def job_page(client: Client) -> int:
    """Return the address of the job page in a client's memory."""
    maps = Path(f"/proc/{client.pid}/maps").read_text()
    start = re.search(r"^([0-9a-f]+)-.*memfd:orion-job", maps, re.MULTILINE)
    assert start is not None
    return int(start[1], 16)


@pytest.mark.parametrize("nonsense", [b"\0", b"\xff", b"\x55", b"\x01"])
def test_nonsense_in_the_page_does_no_harm_to_others(job: Job, nonsense: bytes) -> None:
    job.warm()
    job.train(200)
    with open(f"/proc/{job.ranks[1].pid}/mem", "r+b") as memory:
        memory.seek(job_page(job.ranks[1]))
        memory.write(nonsense * layout.PAGE_SIZE)
    with busy(job.hps[0], 50):
        pass
    other = job.machine.start("be-1")
    assert other.must("run 20 200").seconds < 10
    assert all(rank.process.poll() is None for rank in job.ranks), "the job itself may be late, but no rank crashes"


def test_a_context_with_held_collectives_can_end(job: Job) -> None:
    job.warm()
    with busy(job.hps[1], 3000) as launched:
        job.ranks[1].send("compute 1 200")
        for rank in job.ranks:
            rank.send("collective 200")
            rank.send("end")
        job.ranks[1].answer()
        ended = [[rank.answer(2.5) for _ in range(2)][1].ended for rank in job.ranks]
    assert max(ended) < launched.began + 2900 * MILLISECOND, "hp was still busy"
