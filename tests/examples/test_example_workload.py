"""The examples' program: its output, its end, and its behaviour in containers with the hook."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from orion.node_agent.api import agent_pb2
from testbed import example_image
from testbed.ports import free_port
from tests.hook.containers import command_in, end_container, process_in
from tests.hook.harness import Machine
from tests.hook.scripted_client import DEADLINE, eventually

EXAMPLES = Path(__file__).parents[2] / "examples"


class Running:
    """A running workload, and the lines that it has written so far."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        self._output = output
        with output.open("wb") as out:
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return its complete lines with this event."""
        text = self._output.read_text()
        whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
        found = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in found if line["event"] == event]

    def until(self, event: str, count: int = 1) -> dict[str, Any]:
        """Wait for the `count`-th line with this event, and return it."""
        eventually(lambda: len(self.lines(event)) >= count or self.process.poll() is not None, f"{count} x {event}")
        assert len(self.lines(event)) >= count, self._output.read_text()
        return self.lines(event)[count - 1]

    def end(self) -> dict[str, Any]:
        """Send SIGTERM, and return its summary."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0, self._output.read_text()
        (summary,) = self.lines("summary")
        return summary


Start = Callable[..., Running]


@pytest.fixture
def start(machine: Machine, workload: Path) -> Iterator[Start]:
    """Start the program with the machine's agent, but without the hook."""
    started: list[Running] = []

    def run(*words: str, **environment: str) -> Running:
        output = machine.folder / f"output-{machine.next_number()}"
        started.append(Running([str(workload), *words], machine.client_environment(None) | environment, output))
        return started[-1]

    yield run
    for each in started:
        each.process.kill()
        each.process.wait(DEADLINE)


def test_serve_reports_latencies(start: Start, machine: Machine) -> None:
    begun = time.monotonic()
    server = start("serve", "--rate", "100", "--fixed", "1", "--kernels", "2", "--kernel-us", "1000", "--report", "0.5")
    ready = server.until("ready")
    assert (ready["mode"], ready["driver"], ready["gpu"]) == ("serve", "simulated", machine.uuids[0])
    reports = [server.until("report", count) for count in (1, 2)]
    summary = server.end()
    ran = time.monotonic() - begun
    assert 0 < sum(report["count"] for report in reports) <= summary["count"] <= ran * 100 + 1
    assert 1 <= summary["seconds"] <= ran
    for line in (*reports, summary):
        assert 2 <= line["p50_ms"] <= line["p99_ms"] <= line["max_ms"]
        assert 2 <= line["mean_ms"] <= line["max_ms"]


def test_serve_is_an_open_loop(start: Start) -> None:
    server = start("serve", "--rate", "1000", "--kernels", "1", "--kernel-us", "10000", "--seconds", "1")
    summary = server.until("summary")
    assert server.process.wait(DEADLINE) == 0
    assert summary["count"] <= 101
    assert summary["max_ms"] > 500  # the last request waited for all requests before it


def test_http_requests_get_the_latest_report(start: Start) -> None:
    port = free_port()
    server = start("serve", "--kernel-us", "100", "--report", "0.2", "--port", str(port))
    server.until("report", 2)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(3):
        with opener.open(f"http://127.0.0.1:{port}/", timeout=DEADLINE) as answer:
            report = json.loads(answer.read())
            assert (answer.status, report["event"]) == (200, "report")
        assert report in server.lines("report")
    assert server.end()["count"] > 0


@contextmanager
def port_of_its_own() -> Iterator[int]:
    """Yield a port that no address of the machine uses, for a server.

    This process keeps it and does not listen, so the kernel gives it to nobody else.
    """
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("", 0))
        yield keeper.getsockname()[1]


def test_without_a_rate_each_http_request_is_computed(start: Start) -> None:
    with port_of_its_own() as port:
        server = start("serve", "--rate", "0", "--kernels", "2", "--kernel-us", "20000", "--port", str(port))
        server.until("ready")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(3):
        with opener.open(f"http://127.0.0.1:{port}/", timeout=DEADLINE) as answer:
            assert answer.status == 200
    summary = server.end()
    assert summary["count"] == 3
    assert summary["p50_ms"] >= 40


def test_a_port_in_use_is_reported(start: Start) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        server = start("serve", "--port", str(taken.getsockname()[1]))
        assert server.process.wait(DEADLINE) == 1
    assert server.lines("error")[0]["error"] == "Address already in use"


def test_train_reports_steps_per_second(start: Start) -> None:
    trainer = start("train", "--kernels", "2", "--kernel-us", "1000", WORKLOAD_REPORT="0.5")
    reports = [trainer.until("report", count) for count in (1, 2)]
    summary = trainer.end()
    assert all(0 < report["steps_per_s"] <= 510 for report in reports)
    assert summary["steps"] >= sum(report["steps"] for report in reports)
    assert summary["steps"] <= summary["seconds"] * 500 + 1


def test_the_command_line_overrides_the_environment(start: Start) -> None:
    assert start("train", "--kernels", "7", WORKLOAD_KERNELS="3").until("ready")["kernels"] == 7
    assert start("train", WORKLOAD_KERNELS="3").until("ready")["kernels"] == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "the first word must be serve or train"),
        (["fly"], "the first word must be serve or train: fly"),
        (["serve", "--speed", "1"], "there is no option: --speed"),
        (["serve", "--rate"], "this option needs a value: --rate"),
        (["serve", "--rate", "fast"], "--rate: fast"),
        (["serve", "--rate", "0"], "must be positive"),
        (["train", "--memory", "3XB"], "--memory: 3XB"),
    ],
)
def test_invalid_options_are_refused_in_a_sentence(workload: Path, words: list[str], sentence: str) -> None:
    done = subprocess.run([workload, *words], capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_works_without_a_gpu(workload: Path) -> None:
    done = subprocess.run([workload, "--help"], capture_output=True, text=True, timeout=DEADLINE, env={})
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("serve", "train", "--rate", "WORKLOAD_RATE", "SIGTERM"))


def test_an_error_is_the_last_line(start: Start, workload: Path) -> None:
    greedy = start("train", "--memory", "900GiB")
    assert greedy.process.wait(DEADLINE) == 1
    assert greedy.lines("error") == [{"event": "error", "call": "cuMemAlloc", "error": "CUDA_ERROR_OUT_OF_MEMORY"}]
    alone = subprocess.run([workload, "serve"], capture_output=True, text=True, timeout=DEADLINE, env={})
    assert alone.returncode == 1
    assert json.loads(alone.stdout)["error"] == "there is no libcuda.so.1: this container has no GPU"


# -- In containers, as in the examples' pods ---------------------------------------------------------------------------


def pod(name: str) -> dict[str, Any]:
    """Return the pod template of an example's Deployment."""
    deployment = next(yaml.safe_load_all((EXAMPLES / name).read_text()))
    specification: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return specification


class Pod(Running):
    """The container of an example's pod."""

    def __init__(self, machine: Machine, name: str, slot: str, *more: str) -> None:
        specification = pod(name)
        (container,) = specification["containers"]
        command = [example_image.PROGRAM, *container["args"], *more]
        user = specification["securityContext"]["runAsUser"]
        shell = command_in(machine, example_image.files(), command, slot, user=user)
        super().__init__(shell, dict(os.environ), machine.folder / f"pod-{machine.next_number()}")

    @property
    def pid(self) -> int:
        return process_in(self.process)

    def end(self) -> dict[str, Any]:
        os.kill(self.pid, signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0
        (summary,) = self.lines("summary")
        return summary

    def close(self) -> None:
        end_container(self.process)


@pytest.fixture
def start_pod(machine: Machine) -> Iterator[Callable[..., Pod]]:
    pods: list[Pod] = []

    def run(name: str, slot: str, *more: str) -> Pod:
        pods.append(Pod(machine, name, slot, *more))
        pods[-1].until("ready")
        return pods[-1]

    yield run
    for each in pods:
        each.close()


def client_of(machine: Machine, each: Pod) -> agent_pb2.Client | None:
    clients = (client for slot in machine.gpu().slots for client in slot.clients)
    return next((client for client in clients if client.process_id == each.pid), None)


def test_the_examples_pods_share_the_gpu(machine: Machine, start_pod: Callable[..., Pod]) -> None:
    serve, train = (
        start_pod("serve.yaml", "hp-0", "--report", "1", "--port", "0"),
        start_pod("train.yaml", "be-0", "--report", "1"),
    )
    for each in (serve, train):
        eventually(lambda each=each: client_of(machine, each), f"{each.pid} has joined")  # type: ignore[misc]

    def gated() -> bool:
        client = client_of(machine, train)
        return client is not None and client.gated_launches > 0

    eventually(gated, "train waits for serve")
    assert serve.until("report", 2)["count"] > 0
    assert train.until("report", 2)["steps"] > 0
    used = 4 << 30  # train.yaml
    eventually(lambda: machine.gpu().memory_used_bytes == used, "the memory is counted")
    assert train.end()["steps"] > 0
    eventually(lambda: machine.gpu().memory_used_bytes == 0, "the memory is free again")
    assert serve.end()["count"] > 0


def test_the_examples_are_restricted_and_never_pulled() -> None:
    for name in ("serve.yaml", "train.yaml"):
        specification = pod(name)
        (container,) = specification["containers"]
        assert (container["image"], container["imagePullPolicy"]) == (example_image.NAME, "Never")
        assert specification["securityContext"]["runAsNonRoot"] is True
        assert specification["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
