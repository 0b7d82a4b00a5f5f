"""The answers to the kubelet's probes are quick and correct, whatever other peers do at the port."""

import contextlib
import http.client
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orion.node_agent.agent import Agent
from orion.node_agent.api import agent_pb2
from orion.node_agent.api.client import AgentClient
from orion.node_agent.metrics.probes import Probes
from orion.node_agent.service.server import AdministratorsServer
from tests.node_agent.agent_in_cluster import Node
from tests.node_agent.conftest import GPU, AgentProcess, eventually

PROBE_SECONDS = 5.0
""" The chart's timeout of a probe. """


def probe(agent: AgentProcess, path: str = "/healthz") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", agent.metrics_port, timeout=PROBE_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()


@pytest.fixture
def served(stopped_agent: AgentProcess) -> AgentProcess:
    stopped_agent.start("--metrics-address", "127.0.0.1:0")
    return stopped_agent


@contextlib.contextmanager
def flood(agent: AgentProcess, source: str, request: bytes) -> Iterator[list[int]]:
    """Let one peer open connections as fast as it can and read nothing; yields a list with their number."""
    ended, count = threading.Event(), [0]

    def run() -> None:
        mine: list[socket.socket] = []
        while not ended.is_set():
            with contextlib.suppress(OSError):
                sock = socket.create_connection(("127.0.0.1", agent.metrics_port), 1, (source, 0))
                mine.append(sock)
                sock.send(request)
                count[0] += 1
            if len(mine) > 500:
                mine.pop(0).close()
        for sock in mine:
            sock.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("request_text", [b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["silent", "metrics"])
def test_probes_are_answered_while_a_peer_floods_the_port(served: AgentProcess, request_text: bytes) -> None:
    with flood(served, "127.0.0.2", request_text) as count:
        answered = 0
        while answered < 20 or count[0] < 1_000:
            assert probe(served) == (200, "ok")
            assert probe(served, "/readyz") == (200, "ok")
            answered += 1


def test_probes_are_answered_while_many_peers_take_all_connections(served: AgentProcess) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(300):
            address = ("127.0.0.1", served.metrics_port)
            stack.enter_context(socket.create_connection(address, 5, (f"127.0.1.{number % 100 + 1}", 0)))
        for _ in range(20):
            assert probe(served) == (200, "ok")
        assert probe(served, "/metrics")[0] == 200


def test_a_peer_with_too_many_connections_loses_its_oldest_connection(served: AgentProcess) -> None:
    address = ("127.0.0.1", served.metrics_port)
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(socket.create_connection(address, 5, ("127.0.0.3", 0)))
        crowd = [stack.enter_context(socket.create_connection(address, 5, ("127.0.0.2", 0))) for _ in range(65)]
        assert crowd[0].recv(1) == b""
        for sock in (crowd[-1], other):
            sock.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(15) == b"HTTP/1.1 200 OK"


def test_an_agent_without_its_socket_is_unhealthy_and_the_next_one_fixes_it(served: AgentProcess) -> None:
    for gone, sentence in (
        (served.root / "agent.sock", f"the socket {served.root}/agent.sock is gone"),
        (served.slot("be-3") / "agent.sock", f"the socket of slot be-3 of GPU {GPU} is gone"),
    ):
        assert probe(served) == (200, "ok")
        gone.unlink()
        assert probe(served) == (503, sentence)
        assert probe(served, "/readyz") == (503, sentence)
        served.kill()
        served.start("--metrics-address", "127.0.0.1:0")
    shutil.rmtree(served.root / "gpus" / GPU / "be-3")
    assert probe(served)[0] == 503
    served.kill()
    served.start("--metrics-address", "127.0.0.1:0")
    assert probe(served) == (200, "ok")


@pytest.mark.parametrize(
    ("seconds", "needs_restart", "sentence"),
    [
        (0.5, "", ""),
        (31.0, "", "the agent has not checked its GPUs for 31 s"),
        (0.5, "the driver was replaced", "the driver was replaced"),
    ],
)
def test_an_agent_is_unhealthy_if_a_restart_helps(seconds: float, needs_restart: str, sentence: str) -> None:
    agent = SimpleNamespace(
        looking=SimpleNamespace(seconds_since=seconds),
        gpus={},
        source=SimpleNamespace(needs_restart=lambda: needs_restart),
        holders=SimpleNamespace(waits_for=lambda: ""),
    )
    probes = Probes(cast("Agent", agent), cast("AdministratorsServer", SimpleNamespace(is_there=True)))
    assert probes.unhealthy() == probes.unready() == sentence


def test_the_agent_stays_healthy_while_slots_open_and_close(served: AgentProcess) -> None:
    with AgentClient(served.root) as administrator:
        for number in range(3):
            administrator.open_slot(GPU, agent_pb2.BE, name=f"mine-{number}")
            assert probe(served) == (200, "ok")
            administrator.close_slot(GPU, f"mine-{number}")
            assert probe(served) == (200, "ok")


def test_an_agent_is_ready_when_kubelet_and_api_server_have_answered_once(
    stopped_agent: AgentProcess, socket_folder: Path
) -> None:
    node = Node(stopped_agent, socket_folder)
    try:
        node.kubelet.stop()
        node.start("--metrics-address", "127.0.0.1:0")
        assert probe(stopped_agent, "/readyz") == (
            503,
            "the kubelet has not reported yet which container has which slot",
        )
        assert probe(stopped_agent) == (200, "ok")
        node.kubelet.start()
        eventually(lambda: probe(stopped_agent, "/readyz") == (200, "ok"), "both have answered")
        node.kubelet.stop()
        assert probe(stopped_agent, "/readyz") == (200, "ok")
    finally:
        node.stop()


def test_the_answer_to_an_unknown_path_lists_the_paths(served: AgentProcess) -> None:
    for path in ("/health", "/metrics/x", "//"):
        assert probe(served, path) == (404, "GET /metrics, /healthz or /readyz")
