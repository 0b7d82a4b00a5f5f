"""A job with one process for each GPU, each beside an hp program."""

from dataclasses import dataclass, field
from pathlib import Path

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client, busy, eventually

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
