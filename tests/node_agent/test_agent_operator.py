"""An agent and the operator: certificates, tokens, and streams that end, with a real agent process."""

import asyncio
import time
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orion.node_agent.cluster.holders import operator_link
from orion.node_agent.cluster.holders.holders import ClusterHolders
from orion.node_agent.cluster.holders.operator_link import OperatorAddress, OperatorLink
from orion.operator.certificates.issuing import new_self_signed, utc_now
from tests.node_agent.agent_in_cluster import SECONDS, Node, grant
from tests.node_agent.conftest import GPU, eventually
from tests.node_agent.one_gpu import agent_of_one_gpu
from tests.waiting import eventually_async

MIB = 1 << 20


def limit(node: Node) -> int:
    return node.slot("be-0").memory_limit_bytes


def test_the_agent_trusts_a_new_replica_once_its_certificate_is_published(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    calls = len(node.pods.tokens)
    node.pods.replace(publish=False)
    node.pods.put("a", grant(memoryLimitBytes=2 * MIB))
    eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in node.agent.log(), "it refuses the certificate", SECONDS)
    assert (limit(node), len(node.pods.tokens)) == (MIB, calls)  # it sent its token to nobody
    node.pods.publish()
    eventually(lambda: limit(node) == 2 * MIB, "it has read the certificates again", SECONDS)


def test_the_agent_presents_its_renewed_token_after_a_stream_has_ended(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    node.pods.token.write_text("renewed")
    node.pods.accepted = "renewed"
    node.pods.cut()
    node.pods.put("a", grant(memoryLimitBytes=2 * MIB))
    eventually(lambda: limit(node) == 2 * MIB, "the new stream", SECONDS)
    assert node.pods.tokens[-1] == "renewed"
    assert "does not answer" not in node.agent.log()  # the end of a stream is no error


def test_a_refused_token_is_reported_and_the_grants_stay(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    node.pods.accepted = "another"
    node.pods.cut()
    eventually(lambda: "UNAUTHENTICATED: the token is not valid" in node.agent.log(), "it says so", SECONDS)
    assert limit(node) == MIB


def test_an_empty_grant_leaves_a_pod_its_last_one(stopped_node: Node) -> None:
    node = stopped_node
    node.start()
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    node.pods.put("a")  # no share can govern the pod any more
    node.run("b", "be-1", grant(memoryLimitBytes=2 * MIB))
    assert limit(node) == MIB
    assert node.prepare("be-0").slot.memory_limit_bytes == MIB  # the pod's container was restarted
    node.agent.kill()
    node.start()
    eventually(lambda: "pod a" not in node.conditions(), "it serves", SECONDS)
    node.pods.put("c", grant(memoryLimitBytes=MIB))
    node.kubelet.give("c", (GPU, "be-2"))
    eventually(lambda: node.slot("be-2").memory_limit_bytes == MIB, "the operator has answered", SECONDS)
    assert limit(node) == MIB
    node.pods.put("a", uid="another-pod")
    eventually(lambda: limit(node) == 0, "a new pod of that name does not inherit it", SECONDS)


def test_an_agent_that_has_no_answer_yet_is_not_ready_and_says_why(stopped_node: Node) -> None:
    node = stopped_node
    node.pods.certificates = {}
    node.start("--metrics-address", "127.0.0.1:0")
    url = f"http://127.0.0.1:{node.agent.metrics_port}"

    def unready() -> str:
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{url}/readyz", timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            return error.read().decode()

    eventually(lambda: "has no certificate: is a replica of the operator ready?" in unready(), "it says why", SECONDS)
    assert unready().startswith("the operator has not reported yet which pods are on this node: ")
    node.pods.publish()
    eventually(lambda: not unready(), "it is ready", SECONDS)


async def test_an_operator_that_is_away_for_a_minute_is_a_condition_of_each_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused: Any = SimpleNamespace()  # stands for the API server and the kubelet, which the test does not query
    link = OperatorLink(unused, OperatorAddress("a/b", "", tmp_path / "token"))
    with agent_of_one_gpu() as agent:
        holders = ClusterHolders(agent, link, unused)
        conditions = agent.gpus[GPU].conditions

        def reported(error: str, seconds: float) -> str:
            link.error = error
            with monkeypatch.context() as later:
                later.setattr(time, "monotonic", lambda now=time.monotonic: now() + seconds)
                holders.start()
            return conditions.reported.get("OperatorAway", "")

        assert reported("", 61) == ""
        assert reported("it is gone", 50) == ""
        assert reported("it is gone", 61).endswith("no replica of the operator answers: it is gone")
        assert reported("", 61) == ""


async def test_an_operator_that_is_away_costs_the_api_server_only_a_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, attempts, enough = list[str](), list[int](), asyncio.Event()
    monkeypatch.setattr(operator_link, "_BACKOFF_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(operator_link, "time", SimpleNamespace(monotonic=lambda: 1_000.0 + len(attempts)))

    class Api:
        async def get(self, path: str) -> dict[str, Any]:
            read.append(path)
            certificate = new_self_signed("localhost", utc_now(), timedelta(days=1), timedelta()).pem.decode()
            return {"data": {"a": certificate}, "spec": {"clusterIP": "127.0.0.1", "ports": [{"port": 1}]}}

    async def nobody(host: str, port: int, **options: Any) -> None:
        attempts.append(port)
        if len(attempts) == 100:  # each takes a second
            enough.set()
        raise ConnectionRefusedError("connection refused")

    monkeypatch.setattr(asyncio, "open_connection", nobody)
    (tmp_path / "token").write_text("t")
    api: Any = Api()
    link = OperatorLink(api, OperatorAddress("a/b", "", tmp_path / "token"))
    running = asyncio.create_task(link.run(lambda _: None))
    async with asyncio.timeout(60):
        await enough.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert 2 <= read.count("/api/v1/namespaces/a/configmaps/b") <= 4
    assert len(read) == 2 * read.count("/api/v1/namespaces/a/services/b")
    assert link.error == "connection refused"


async def test_a_replica_that_closes_each_connection_at_once_counts_as_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = list[asyncio.StreamWriter]()
    monkeypatch.setattr(operator_link, "_BACKOFF_SECONDS", (0.0, 0.0))

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.append(writer)
        await reader.read(4_096)
        writer.close()

    class Api:
        async def get(self, path: str) -> dict[str, Any]:
            certificate = new_self_signed("localhost", utc_now(), timedelta(days=1), timedelta()).pem.decode()
            return {"data": {"a": certificate}}

    (tmp_path / "token").write_text("t")
    api: Any = Api()
    server = await asyncio.start_server(close, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    link = OperatorLink(api, OperatorAddress("a/b", address, tmp_path / "token"))
    running = asyncio.create_task(link.run(lambda _: None))
    async with server:
        await eventually_async(lambda: len(attempts) > 3)
        assert link.error
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in attempts), return_exceptions=True)


def test_a_token_that_cannot_be_sent_is_reported_and_the_grants_stay(node: Node) -> None:
    node.run("a", "be-0", grant(memoryLimitBytes=MIB))
    node.pods.token.write_bytes(b"\xff\n\xff")
    node.pods.cut()
    eventually(lambda: "the token cannot be used" in node.agent.log(), "it says so", SECONDS)
    assert node.prepare("be-0").slot.memory_limit_bytes == MIB
