"""Measures the memory and the CPU time that the operator's server for node agents needs, by the number of agents.

    python -m measurements.cluster.node_pods_memory --agents 1000 --out FILE

The server is the real one, in a process of its own, with TLS. Its pods are made up: 20 with grants on each node. An
API server that accepts every token takes the place of the real one. Each agent is a call over a connection of its own.
After all agents have the pods of their node, the script waits, and then changes the pods of all nodes at once.
"""

import argparse
import asyncio
import asyncio.sslproto
import json
import os
import random
import resource
import ssl
import sys
import time
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry

from orion.api_server.requests import ApiServer
from orion.bench import raw_data
from orion.node_pods import AUDIENCE, LENGTH_BYTES, frame
from orion.node_pods.node_pods_pb2 import Answer, Call, Pod, PodsOfNode
from orion.operator.node_pods.callers import NODE_NAME
from orion.operator.node_pods.serving import NodePodsServer
from orion.operator.node_pods.settings import NodePodsSettings

PODS_OF_A_NODE = 20
REST_S = 30.0
_GRANT = '{"containers":{"main":{"memoryLimitBytes":%d,"slots":1}},"failClosed":false,"format":1,"priority":"be"}'


class AcceptingApi:
    """Takes the place of an API server: a token is the name of its node."""

    def __init__(self) -> None:
        self.certificate = ""

    async def get(self, path: str) -> dict[str, Any]:
        """Return an empty ConfigMap."""
        return {"data": {}}

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Keep the certificate."""
        self.certificate = next(filter(None, body["data"].values()), "")
        return {}

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Accept a token."""
        user = {"username": "system:serviceaccount:o:agent", "extra": {NODE_NAME: [body["spec"]["token"]]}}
        return {"status": {"authenticated": True, "audiences": [AUDIENCE], "user": user}}


class MadeUpPods:
    """Knows the same pods for every node."""

    def __init__(self) -> None:
        self.limit, self.nodes = 1, set[str]()

    def of(self, node: str) -> PodsOfNode:
        """Return the pods of a node."""
        self.nodes.add(node)
        made: dict[str, Any] = {"namespace": "team", "created": "2026-01-01T00:00:00Z", "grant": _GRANT % self.limit}
        return PodsOfNode(pods=[Pod(name=f"{node}-{n}", uid=f"{node}-{n}", **made) for n in range(PODS_OF_A_NODE)])

    def take_changed(self) -> tuple[set[str], bool]:
        """Return all nodes."""
        return self.nodes, False


async def serve() -> None:
    """Serve; print the port and the certificate. Each line of the input changes all pods, and prints figures first."""
    api, pods = AcceptingApi(), MadeUpPods()
    settings = NodePodsSettings(address="127.0.0.1:0", name="localhost", namespace="o", agents="o/agent", replica="r")
    server = NodePodsServer(settings, cast("ApiServer", api), pods, CollectorRegistry())
    tasks = [asyncio.create_task(each) for each in (server.keep_published(), server.serve())]
    server.begin()
    while server.waits_for:
        await asyncio.sleep(0.1)
    print(json.dumps({"port": server.port, "certificate": api.certificate}), flush=True)
    longest = [0.0]
    tasks.append(asyncio.create_task(keep_longest_block(longest)))
    while await asyncio.to_thread(sys.stdin.readline):
        used = resource.getrusage(resource.RUSAGE_SELF)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        print(
            json.dumps({"resident": resident, "cpu": used.ru_utime + used.ru_stime, "longest_block_s": longest[0]}),
            flush=True,
        )
        longest[0] = 0.0
        pods.limit += 1
        server.notice()
    for task in tasks:
        task.cancel()


async def keep_longest_block(longest: list[float]) -> None:
    """Keep for how long the event loop was blocked at most; on a busy machine this includes waits for a core."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.001)
        longest[0] = max(longest[0], time.monotonic() - began - 0.001)


class Agents:
    """The calls of all agents."""

    def __init__(self, port: int, certificate: str) -> None:
        self._port, self._context = port, ssl.create_default_context(cadata=certificate)
        self._grants: dict[str, str] = {}
        self.ended = 0

    def with_limit(self, limit: int) -> int:
        """Return how many agents have a grant with this memory limit."""
        return sum(grant == _GRANT % limit for grant in self._grants.values())

    async def listen(self, node: str) -> None:
        """Call, again and again, until cancelled."""
        while True:
            try:
                await self._call(node)
            except (OSError, EOFError):
                self.ended += 1
                await asyncio.sleep(random.uniform(0.5, 2))

    async def _call(self, node: str) -> None:
        number = int(node.partition("-")[2])
        own = (f"127.1.{number // 250}.{1 + number % 250}", 0)  # each agent has an address of its own
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._context, server_hostname="localhost", local_addr=own
        )
        try:
            writer.write(frame(Call(token=node)))
            while True:
                size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
                answer = Answer.FromString(await reader.readexactly(size))
                self._grants[node] = answer.pods.pods[0].grant
        finally:
            writer.transport.abort()


async def measure(agents: int) -> dict[str, Any]:
    """Return all figures."""
    program = ["-m", "measurements.cluster.node_pods_memory", "--serve"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *program, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    first = json.loads(await process.stdout.readline())
    calls = Agents(first["port"], first["certificate"])
    found: dict[str, Any] = {"agents": agents}

    async def figures() -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        return dict(json.loads(await process.stdout.readline()))

    async def until(limit: int) -> float:
        began = time.monotonic()
        while calls.with_limit(limit) < agents:
            await asyncio.sleep(0.02)
        return time.monotonic() - began

    found["alone"] = await figures()
    tasks = [asyncio.create_task(calls.listen(f"node-{number}")) for number in range(agents)]
    found["connected_s"] = await until(2)
    found["connected"] = await figures()
    found["changed_s"] = await until(3)
    found["calls_ended"] = calls.ended
    await asyncio.sleep(REST_S)
    found["rest"], before = await figures(), found["connected"]
    found["cpu_of_rest_ratio"] = (found["rest"]["cpu"] - before["cpu"]) / (REST_S + found["changed_s"])
    process.stdin.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await process.wait()
    return found


def main() -> int:
    """Measure, print the figures, and write the raw data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", action="store_true", help="be the server")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return 0
    asyncio.sslproto.SSLProtocol.max_size = 16 * 1024  # else each of this process's connections takes 256 KiB
    raw = raw_data.header("measurements.cluster.node_pods_memory") | {"load_before": os.getloadavg()[0]}
    found = asyncio.run(measure(options.agents))
    print(json.dumps(found, indent=1))
    if options.out is not None:
        raw["command"] = raw["command"].replace(str(options.out), "FILE")
        raw_data.write(options.out, raw | found | {"load_after": os.getloadavg()[0]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
