"""The worker process: set-up, commands, errors, and several workloads as threads of one process."""

import io
import json
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from orion.bench.managed import machine
from orion.bench.workers import threads as worker_threads
from orion.bench.workload import NoTrace, Place

CLIENT = {"kind": "simulated-inference", "options": {"kernel_us": 500, "kernels": 2}}
CLIENTS = [{"role": "be", **CLIENT}, {"role": "hp", **CLIENT}]


@pytest.fixture(scope="module")
def simulated() -> Iterator[dict[str, str]]:
    with machine(simulated=True) as environment:
        yield environment


@contextmanager
def worker(environment: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "orion.bench.workers.worker", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def send(process: subprocess.Popen[str], **command: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(command) + "\n")
    process.stdin.flush()


def receive(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=30)[1]
    reply: dict[str, Any] = json.loads(line)
    return reply


def test_the_first_reply_describes_the_workload(simulated: dict[str, str]) -> None:
    with worker(simulated, "simulated-training", json.dumps({"kernels": 2, "amount": 32.0})) as process:
        about = receive(process)
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert (about["ready"], about["unit"], about["amount"]) == (True, "steps", 32.0)
    assert about["details"]["step_ms"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    "words",
    [
        ("gemm", '{"size": 0}'),
        ("--threads", json.dumps([{"role": "hp", "kind": "gemm", "options": {"size": 0}}]), '{"scheduler": null}'),
    ],
)
def test_an_invalid_workload_ends_the_worker_with_a_sentence(words: tuple[str, ...], simulated: dict[str, str]) -> None:
    with worker(simulated, *words) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert errors.splitlines()[-1].startswith("Invalid: gemm: option size is 0; it must be")


@pytest.mark.parametrize("threads", [False, True])
def test_an_exception_ends_the_worker_and_is_its_last_line(threads: bool, simulated: dict[str, str]) -> None:
    words = ("--threads", json.dumps(CLIENTS), '{"scheduler": null}') if threads else ("simulated-inference",)
    with worker(simulated, *words) as process:
        for _ in CLIENTS if threads else [1]:
            receive(process)
        send(process, do="dance", begin=time.monotonic(), client=1)
        assert process.wait(timeout=30) == 1
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "ValueError: unknown command 'dance'"


def test_a_driver_error_names_the_function(simulated: dict[str, str]) -> None:
    with worker({**simulated, "ORION_SIM_GPUS": "0", "ORION_SIM_STATE": simulated["ORION_SIM_STATE"] + "/none"},
                "simulated-inference") as process:  # fmt: skip
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("Unavailable: cuInit answered ")


def test_commands_of_clients_overlap_and_replies_name_their_client(simulated: dict[str, str]) -> None:
    with worker(simulated, "--threads", json.dumps(CLIENTS), '{"scheduler": null}') as process:
        ready = [receive(process) for _ in CLIENTS]
        begin = time.monotonic() + 0.2
        send(process, client=0, do="loop", begin=begin, end=begin + 0.5)
        send(process, client=1, do="serve", begin=begin, arrivals=[0.0, 0.1, 0.2])
        replies = {reply["client"]: reply for reply in (receive(process), receive(process))}
        process.communicate(timeout=30)
    assert [(about["client"], about["ready"]) for about in ready] == [(0, True), (1, True)]
    assert set(replies) == {0, 1}
    assert len(replies[1]["ends"]) == 3
    assert replies[0]["ends"][0] < replies[1]["ends"][-1]
    assert replies[1]["ends"][0] < replies[0]["ends"][-1]
    assert process.returncode == 0


def test_a_policy_command_without_a_scheduler_is_an_error(simulated: dict[str, str]) -> None:
    with worker(simulated, "--threads", json.dumps(CLIENTS), '{"scheduler": null}') as process:
        for _ in CLIENTS:
            receive(process)
        send(process, do="policy", policy="gate", max_slowdown=1.0)
        assert process.wait(timeout=30) == 1
        assert process.stderr is not None
        assert "there is no scheduler" in process.stderr.read().splitlines()[-1]


class FakeWorkload:
    unit, amount, gpu = "steps", 1.0, "none"

    def __init__(self, place: Place) -> None:
        assert place.one_of_several
        assert place.stream is not None
        self.thread = threading.get_ident()
        self.details: dict[str, Any] = {"stream": place.stream()}
        self.trace = NoTrace()
        self.throughout = nullcontext

    def step(self) -> None:
        assert threading.get_ident() == self.thread

    def finish(self) -> None:
        assert threading.get_ident() == self.thread


class FakeScheduler:
    made: list["FakeScheduler"]

    def __init__(self, clients: list[str], **settings: Any) -> None:
        self.events: list[Any] = [clients, settings]
        self.made.append(self)

    def __enter__(self) -> "FakeScheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.events.append("stopped")

    @contextmanager
    def client(self, index: int) -> Iterator[Any]:
        self.events.append(("bound", index))
        yield types.SimpleNamespace(stream=100 + index)
        self.events.append(("unbound", index))

    def set_policy(self, **settings: Any) -> None:
        self.events.append(settings)


class RecordedReplies:
    """Replaces `process.Replies`."""

    def __init__(self) -> None:
        self.replies: list[dict[str, Any]] = []

    def send(self, reply: dict[str, Any]) -> None:
        self.replies.append(reply)


def test_each_thread_is_a_client_of_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FakeScheduler] = []
    monkeypatch.setattr(FakeScheduler, "made", made, raising=False)
    fake = types.ModuleType("orion.inprocess")
    fake.Scheduler = FakeScheduler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "orion.inprocess", fake)
    monkeypatch.setattr(worker_threads, "make", lambda kind, options, place: FakeWorkload(place))
    monkeypatch.setattr(worker_threads, "stop_collecting", lambda: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    begin = time.monotonic()
    lines: list[dict[str, Any]] = [
        {"client": 1, "do": "serve", "begin": begin, "arrivals": [0.0]},
        {"do": "policy", "policy": "orion", "max_slowdown": 1.3},
        {"client": 0, "do": "serve", "begin": begin, "arrivals": [0.0, 0.0]},
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(line) + "\n" for line in lines)))
    recorded = RecordedReplies()
    worker_threads.run(CLIENTS, {"policy": "gate"}, recorded)  # type: ignore[arg-type]
    (scheduler,) = made
    assert scheduler.events[:2] == [["be", "hp"], {"policy": "gate"}]
    assert scheduler.events[-1] == "stopped"
    assert {"policy": "orion", "max_slowdown": 1.3} in scheduler.events
    bindings = {event for event in scheduler.events if isinstance(event, tuple)}
    assert bindings == {("bound", 0), ("bound", 1), ("unbound", 0), ("unbound", 1)}
    assert [reply["details"]["stream"] for reply in recorded.replies if "ready" in reply] == [100, 101]
    assert {reply["client"]: len(reply["ends"]) for reply in recorded.replies if "ends" in reply} == {0: 2, 1: 1}
    assert {"policy": {"policy": "orion", "max_slowdown": 1.3}} in recorded.replies


def test_replies_of_several_threads_are_whole_lines() -> None:
    program = """
import threading
from orion.bench.workers.process import Replies
replies = Replies()
threads = [threading.Thread(target=lambda: [replies.send({"x": "y" * 5000}) for _ in range(50)]) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("noise")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"x": "y" * 5000}] * 200
    assert done.stderr == "noise\n"
