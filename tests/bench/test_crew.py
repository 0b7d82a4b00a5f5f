"""Worker processes on the simulated GPU: their commands, replies and ends, and the deadline of each wait."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orion.bench import managed
from orion.bench.managed import ManagedGPU, machine
from orion.bench.workers import crew as crews
from orion.bench.workers.crew import Crew, Worker
from orion.errors import Unavailable

INFERENCE = {"kernel_us": 500, "kernels": 2}
TRAINING = {"kernel_us": 200, "kernels": 5}


@pytest.fixture(scope="module")
def simulated() -> Iterator[dict[str, str]]:
    with machine(simulated=True) as environment:
        yield environment


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as workers:
        yield workers


def started(crew: Crew, environment: dict[str, str], kind: str, **options: object) -> Worker:
    worker = crew.start(kind, f"simulated-{kind}", options, environment)
    crew.ready(worker)
    return worker


def test_requests_are_served_in_order_and_none_before_its_arrival(crew: Crew, simulated: dict[str, str]) -> None:
    worker = started(crew, simulated, "inference", **INFERENCE)
    arrivals = [0.01, 0.011, 0.05]
    worker.command(do="serve", begin=time.monotonic() + 0.1, arrivals=arrivals)
    (reply,) = crew.gather(worker, seconds=30)
    assert all(start >= due for due, start in zip(arrivals, reply["starts"], strict=True))
    assert all(end - start >= 0.001 for start, end in zip(reply["starts"], reply["ends"], strict=True))
    assert reply["starts"][1] >= reply["ends"][0]


def test_a_closed_loop_runs_until_its_end(crew: Crew, simulated: dict[str, str]) -> None:
    worker = started(crew, simulated, "training", **TRAINING)
    begin = time.monotonic() + 0.1
    worker.command(do="loop", begin=begin, end=begin + 0.2)
    (reply,) = crew.gather(worker, seconds=30)
    assert time.monotonic() >= begin + 0.2
    assert reply["ends"][-1] < 2.0
    assert 1 <= len(reply["ends"]) <= 210


def test_the_timeline_shows_only_the_window(crew: Crew, simulated: dict[str, str], tmp_path: Path) -> None:
    worker = started(crew, simulated, "inference", **INFERENCE, timeline=str(tmp_path / "timeline"))
    worker.command(do="serve", begin=time.monotonic() + 0.1, arrivals=[0.0, 0.1, 0.3], trace=[0.05, 0.2])
    (reply,) = crew.gather(worker, seconds=30)
    assert sum(end - begin for begin, end in reply["spans"]) == pytest.approx(0.001, rel=0.01)
    assert all(0.1 <= begin < end < 0.3 for begin, end in reply["spans"])


def test_a_worker_that_cannot_set_up_reports_why(crew: Crew, simulated: dict[str, str]) -> None:
    worker = crew.start("strange", "simulated-nothing", {}, simulated)
    with pytest.raises(Unavailable, match="simulated-nothing"):
        crew.ready(worker)


def test_a_late_answer_is_an_error(crew: Crew, simulated: dict[str, str]) -> None:
    worker = started(crew, simulated, "inference", **INFERENCE)
    worker.command(do="serve", begin=time.monotonic() + 60, arrivals=[0.0])
    with pytest.raises(Unavailable, match="gave no answer"):
        crew.gather(worker, seconds=0.2)


def test_output_of_a_prefix_is_not_taken_as_a_reply(crew: Crew, simulated: dict[str, str]) -> None:
    prefix = ["sh", "-c", 'echo "{not: json"; echo "[1]"; exec "$@"', "sh"]
    worker = crew.start("inference", "simulated-inference", INFERENCE, simulated, prefix)
    crew.ready(worker)
    assert worker.about["unit"] == "requests"


def test_a_worker_that_reads_no_commands_is_an_error(
    crew: Crew, simulated: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crews, "COMMAND_SECONDS", 0.3)
    worker = started(crew, simulated, "inference", **INFERENCE)
    os.kill(worker.process_id, signal.SIGSTOP)
    arrivals = [number / 1e3 for number in range(50_000)]  # more bytes than a pipe's buffer holds
    with pytest.raises(Unavailable, match="cannot be commanded: it does not read"):
        worker.command(do="serve", begin=time.monotonic(), arrivals=arrivals)


def test_a_long_command_arrives_whole(crew: Crew, simulated: dict[str, str]) -> None:
    worker = started(crew, simulated, "inference", **INFERENCE)
    begin = time.monotonic() + 1.0  # a megabyte takes a busy machine a while
    worker.command(do="loop", begin=begin, end=begin + 1.0, note="x" * 1_000_000)
    (reply,) = crew.gather(worker, seconds=30)
    assert reply["ends"]


def test_an_agent_that_does_not_answer_is_an_error(simulated: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    silent_agent = (
        "import socket, sys, time; server = socket.socket(socket.AF_UNIX);"
        "server.bind(sys.argv[sys.argv.index('--root') + 1] + '/agent.sock'); server.listen(); time.sleep(60)"
    )
    monkeypatch.setattr(managed, "AGENT", silent_agent)
    monkeypatch.setattr(managed, "CALL_SECONDS", 0.3)
    with pytest.raises(Unavailable, match="does not answer"), ManagedGPU(simulated, simulated=True):
        pass


def test_the_end_of_the_block_ends_working_workers(simulated: dict[str, str]) -> None:
    with Crew() as crew:
        worker = started(crew, simulated, "training", **TRAINING)
        begin = time.monotonic()
        worker.command(do="loop", begin=begin, end=begin + 60)
    with pytest.raises(ProcessLookupError):
        os.kill(worker.process_id, 0)
    assert time.monotonic() - begin < 30


def test_ctrl_c_in_the_middle_of_a_start_leaves_no_process(
    simulated: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = subprocess.Popen, []

    def interrupted(*words: Any, **named: Any) -> Any:
        started.append(start(*words, **named))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(subprocess, "Popen", interrupted)
        with pytest.raises(KeyboardInterrupt), Crew() as crew:
            crew.start("inference", "simulated-inference", INFERENCE, simulated)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert started[0].poll() is not None
