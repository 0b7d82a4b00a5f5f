"""A process on several GPUs: its collectives pass on all GPUs or on none, and its compute passes each GPU's gate.

The simulated GPUs' trace shows when kernels ran, because no call waits for the kernels meanwhile.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hook.harness import Machine
from tests.hook.scripted_client import MILLISECOND, Client, busy, eventually

pytestmark = pytest.mark.quiet

CLOSING = 5 * MILLISECOND
""" Much longer than a window and one check of the watcher; much shorter than hp is busy. """


@dataclass(frozen=True)
class Trained:
    """A be program on every GPU, beside one hp program on each."""

    machine: Machine
    be: Client
    hps: list[Client]
    trace: Path

    def ran(self, kind: str, gpu: int) -> list[tuple[int, int]]:
        """Return when kernels of that kind ran on a GPU: pieces, each with its start and end."""
        text = self.trace.read_text() if self.trace.exists() else ""
        whole = [
            line for line in text.splitlines(keepends=True) if line.endswith("\n")
        ]  # the last line may be half written
        lines = [line.split() for line in whole]
        name = {"compute": "compute_gpu", "collective": "ncclDevKernel_AllReduce_gpu"}[kind] + str(gpu)
        return sorted((int(line[1]), int(line[2])) for line in lines if line[4] == name)

    def milliseconds(self, kind: str, gpu: int, began: int, ended: int) -> float:
        """Return for how long kernels of that kind ran on a GPU between two times."""
        return sum(max(0, min(end, ended) - max(start, began)) for start, end in self.ran(kind, gpu)) / MILLISECOND

    def synchronised(self) -> None:
        """Wait for all of be's work, and until the trace contains it."""
        self.be.must("sync")
        last = self.be.must("compute 0 200").began
        eventually(lambda: any(end > last for _, end in self.ran("compute", 0)), "the trace is whole")

    def warm(self) -> None:
        """Let the hook learn durations and tie both GPUs."""
        self.be.must("train 40 200 100")
        self.be.must("sync")
        for gpu in range(len(self.hps)):
            for _ in range(8):
                self.be.must(f"compute {gpu} 20000")
        self.be.must("sync")


def start(build: Path, gpus: int, hps: int) -> Iterator[Trained]:
    with Machine(build, gpus=gpus) as machine:
        machine.start_agent()
        trace = machine.folder / "trace"
        program = str(build / "test" / "client_collective")
        clients = []
        for gpu in range(hps):
            hp = machine.start_in(machine.client_root(*["hp-0"] * gpus))
            hp.must(f"init {gpu}")
            machine.until_joined(hp, gpu=gpu)
            clients.append(hp)
        be = machine.start_in(machine.client_root(*["be-0"] * gpus), program, ORION_SIM_TRACE=str(trace))
        be.must(f"init {gpus}")
        for gpu in range(gpus):
            machine.until_joined(be, gpu=gpu)
        yield Trained(machine, be, clients, trace)


@pytest.fixture
def trained(c_build: Path) -> Iterator[Trained]:
    yield from start(c_build, gpus=2, hps=2)


@pytest.mark.parametrize("how", ["train", "threads"])
def test_a_collective_is_held_on_every_gpu_while_hp_is_busy_on_one(trained: Trained, how: str) -> None:
    trained.warm()
    for gpu, hp in enumerate(trained.hps):
        trained.be.send(f"{how} 300 300 200")  # at least 150 ms
        with busy(hp, 150) as launched:
            pass
        assert trained.be.answer().result == 0
        trained.synchronised()
        began, ended = launched.began + CLOSING, launched.began + 145 * MILLISECOND
        for each in range(2):
            assert trained.milliseconds("collective", each, began, ended) == 0, (gpu, each)
        counts = [trained.milliseconds("collective", each, 0, launched.began + 100 * MILLISECOND) for each in range(2)]
        assert abs(counts[0] - counts[1]) < 0.15, counts  # no collective of 0.2 ms started on one GPU alone


def test_compute_goes_on_where_hp_is_idle(trained: Trained) -> None:
    trained.warm()
    with busy(trained.hps[1], 150) as launched:
        trained.be.must("compute 0 20000")
        trained.be.must("collective 200")
    trained.synchronised()
    end = launched.began + 145 * MILLISECOND
    assert trained.milliseconds("compute", 0, launched.began, end) > 19
    for gpu in range(2):
        assert trained.milliseconds("collective", gpu, launched.began, end) == 0


def test_a_collective_waits_for_the_compute_of_all_gpus(trained: Trained) -> None:
    trained.warm()
    # GPU 1 computes for 20 ms before its collective, so GPU 0 does not begin the collective either. Then hp comes.
    trained.be.must("compute 1 20000")
    trained.be.must("collective 100")
    with busy(trained.hps[0], 200) as launched:
        trained.be.send("collective 100")
    assert trained.be.answer().result == 0
    computed = trained.ran("compute", 1)[-1][1]
    trained.synchronised()
    first = [trained.ran("collective", gpu)[-2][0] for gpu in range(2)]
    second = [trained.ran("collective", gpu)[-1][0] for gpu in range(2)]
    assert first[0] > computed - MILLISECOND
    assert min(second) > launched.began + 195 * MILLISECOND


def test_graphs_with_collectives_count(trained: Trained) -> None:
    trained.warm()
    for _ in range(10):
        trained.be.must("graph 200")
    trained.be.must("sync")
    with busy(trained.hps[1], 150) as launched:
        trained.be.send("graph 200")
    assert trained.be.answer().result == 0
    trained.synchronised()
    for gpu in range(2):
        assert trained.milliseconds("collective", gpu, launched.began, launched.began + 145 * MILLISECOND) == 0


def test_collectives_pass_between_alternating_busy_periods_of_two_hps(trained: Trained) -> None:
    trained.warm()
    for index, hp in enumerate(trained.hps):
        hp.send(f"serve 60 3000 {20000 + 1700 * index} 1")
    trained.be.must("train 200 300 200")
    trained.synchronised()
    counts = [trained.milliseconds("collective", gpu, 0, 1 << 62) for gpu in range(2)]
    assert abs(counts[0] - counts[1]) < 5
    for hp in trained.hps:
        assert hp.answer().result == 60


def test_a_gpu_without_hp_neither_holds_nor_waits(c_build: Path) -> None:
    for trained in start(c_build, gpus=2, hps=1):
        trained.warm()
        with busy(trained.hps[0], 150) as launched:
            trained.be.must("apart 1 200")
            trained.be.send("apart 0 200")
        assert trained.be.answer().result == 0
        trained.synchronised()
        end = launched.began + 145 * MILLISECOND
        assert trained.milliseconds("collective", 1, launched.began, end) > 0
        assert trained.milliseconds("collective", 0, launched.began, end) == 0


def test_a_context_with_held_collectives_can_end(trained: Trained) -> None:
    trained.warm()
    with busy(trained.hps[1], 150):
        trained.be.must("collective 200")
        trained.be.must("end", 10)
    trained.be.must("init 2")
    trained.be.must("train 20 200 100")
    trained.synchronised()
