"""A job with one process for each GPU: its collectives pass on all GPUs or on none, as within one process."""

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orion.hook import layout
from orion.node_agent.api import agent_pb2
from tests.hook.harness import Machine, record_word
from tests.hook.scripted_client import LONG_ENOUGH_TO_SEE, MILLISECOND, Client, busy, eventually

pytestmark = pytest.mark.quiet

NOT_READY = 600  # CUDA_ERROR_NOT_READY
CLOSING = 5 * MILLISECOND
""" Much longer than a window and one check of the watcher; much shorter than hp is busy. """


@dataclass
class Job:
    """One rank on each GPU, beside one hp program on each GPU."""

    machine: Machine
    hps: list[Client]
    ranks: list[Client] = field(default_factory=list)
    started: int = 0

    def start(self, gpu: int) -> Client:
        """Start the rank of a GPU and wait until it has joined."""
        self.started += 1
        root = self.machine.client_root(*["be-0"] * len(self.machine.uuids))
        rank = self.machine.start_in(
            root,
            str(self.machine.build / "test" / "client_collective"),
            ORION_SIM_TRACE=str(self.trace(gpu)),
            RANKS_PAGE=str(self.machine.folder / "ranks"),
        )
        rank.must(f"rank {gpu} {len(self.machine.uuids)}")
        self.machine.until_joined(rank, gpu=gpu)
        return rank

    def trace(self, gpu: int) -> Path:
        return self.machine.folder / f"trace-{gpu}"

    def all(self, command: str) -> None:
        """Let all ranks do the same."""
        for rank in self.ranks:
            rank.send(command)
        for rank in self.ranks:
            assert rank.answer().result == 0, command

    def warm(self) -> None:
        """Let the hook learn durations and tie both ranks."""
        self.all("train 40 200 100")
        self.traced()

    def ran(self, kind: str, gpu: int) -> list[tuple[int, int]]:
        """Return when kernels of that kind ran on a GPU: pieces, each with its start and end."""
        kernels = {"compute": "compute", "collective": "ncclDevKernel_AllReduce", "meeting": "ncclDevKernel_Meet"}
        name = f"{kernels[kind]}_gpu{gpu}"
        whole = [line for line in self.trace(gpu).read_text().splitlines(keepends=True) if line.endswith("\n")]
        lines = [line.split() for line in whole]
        return sorted((int(line[1]), int(line[2])) for line in lines if line[4] == name)

    def milliseconds(self, kind: str, gpu: int, began: int, ended: int) -> float:
        """Return for how long kernels of that kind ran on a GPU between two times."""
        return sum(max(0, min(end, ended) - max(start, began)) for start, end in self.ran(kind, gpu)) / MILLISECOND

    def count(self, gpu: int) -> int:
        return len(self.ran("collective", gpu))

    def traced(self) -> None:
        """Wait for all work of the ranks, and until the traces contain it."""
        self.all("sync")
        for gpu, rank in enumerate(self.ranks):
            self.wait_for_compute(gpu, rank.must(f"compute {gpu} 200").began)

    def wait_for_compute(self, gpu: int, after: int) -> None:
        eventually(lambda: any(end > after for _, end in self.ran("compute", gpu)), "the trace is whole")

    def train(self, steps: int) -> None:
        """Let the ranks train, without waiting for the end; return once some collectives have run."""
        before = self.count(0)
        for rank in self.ranks:
            rank.send(f"train {steps} 300 200 10")
        eventually(lambda: self.count(0) > before + 5, "the ranks train")


@pytest.fixture
def machine(c_build: Path, request: pytest.FixtureRequest) -> Iterator[Machine]:
    with Machine(c_build, gpus=getattr(request, "param", 2)) as machine:
        (machine.folder / "ranks").write_bytes(bytes(layout.PAGE_SIZE))
        machine.start_agent()
        for uuid in machine.uuids:
            machine.agent.open_slot(uuid, agent_pb2.BE, name="be-0", owner_process_id=os.getpid())
        yield machine


@pytest.fixture
def job(machine: Machine) -> Job:
    hps = []
    for gpu in range(len(machine.uuids)):
        hp = machine.start_in(machine.client_root(*["hp-0"] * len(machine.uuids)))
        hp.must(f"init {gpu}")
        machine.until_joined(hp, gpu=gpu)
        hps.append(hp)
    job = Job(machine, hps)
    job.ranks = [job.start(gpu) for gpu in range(2)]
    return job


def expect_to_be_held(job: Job, whose: int) -> None:
    """Train while the hp of a GPU is busy eight times; expect that collectives stop on both GPUs together."""
    job.train(200)
    periods = []
    for _ in range(8):
        before = job.count(0)
        with busy(job.hps[whose], 30) as launched:
            periods.append(launched.began)
        eventually(lambda before=before: job.count(0) > before + 3, "the ranks train")  # type: ignore[misc]
    for rank in job.ranks:
        assert rank.answer().result == 0
    job.traced()
    alone = late = 0
    for began in periods:
        end = began + 28 * MILLISECOND
        gpus = range(len(job.ranks))
        late += any(job.milliseconds("collective", gpu, began + CLOSING, end) > 0 for gpu in gpus)
        counts = [job.milliseconds("collective", gpu, 0, end) for gpu in gpus]
        alone += max(counts) - min(counts) > 0.15
    # A collective may have begun on one GPU when hp comes while the other GPU still computes, which is rare: the ranks
    # compute for most of a step. Without a page for the job, both happen in every period.
    assert alone <= 4, "collectives of 0.2 ms began on one GPU alone"
    assert late <= 4, "collectives ran while hp was busy"


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


# -- Faults ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("machine", [3], indirect=True)
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
