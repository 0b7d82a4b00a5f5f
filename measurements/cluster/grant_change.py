"""Measures how long a change of a GPUShare takes to reach the processes of its pods.

    python -m measurements.cluster.grant_change --kubeconfig FILE

It runs against a control plane (`make cluster`, then `kubectl apply --server-side -f charts/orion/files/crds`). The
node has no kubelet: the script starts the real operator, and the real agent on simulated GPUs, and answers the agent's
requests to the kubelet's PodResources interface. It creates a share and a pod that is bound to the node, joins the
pod's slot as a client, and changes the share's memory limit many times. Each measured time starts before the request to
the API server, and ends when the client's grant page has the new limit. (The hook reads this page at each allocation.)
At the end the script removes everything that it made.
"""

import argparse
import asyncio
import contextlib
import json
import mmap
import os
import socket
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from measurements.cluster.webhook_in_cluster import Cluster
from measurements.cluster.webhook_load import conditions, process
from orion.api_server.credentials import find_access
from orion.api_server.paths import DEVICES
from orion.api_server.requests import ApiServer
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from orion.crds.annotations import PRIORITY_LABEL
from orion.crds.model import API_VERSION
from orion.hook import join, layout
from orion.node_agent.api.client import AgentClient
from orion.node_agent.kubelet import api_pb2, api_pb2_grpc
from orion.node_pods import AUDIENCE
from testbed.ports import free_port

SLOT, AGENT, OPERATOR = "be-0", "orion-agent", "orion-operator"
LATE_S = 30.0


class StandInKubelet(api_pb2_grpc.PodResourcesListerServicer):
    """Answers the agent's requests instead of a kubelet: it reports one container, which has one slot."""

    def __init__(self, namespace: str, pod: str) -> None:
        self._namespace, self._pod = namespace, pod
        self.gpu = ""

    async def List(self, request: Any, context: Any) -> api_pb2.ListPodResourcesResponse:  # noqa: N802
        """Return the container with its slot."""
        devices = [api_pb2.ContainerDevices(resource_name="orion.gpu/be", device_ids=[f"{self.gpu}::{SLOT}"])]
        container = api_pb2.ContainerResources(name="main", devices=devices if self.gpu else [])
        pod = api_pb2.PodResources(namespace=self._namespace, name=self._pod, containers=[container])
        return api_pb2.ListPodResourcesResponse(pod_resources=[pod])

    async def GetAllocatableResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return nothing."""
        return api_pb2.AllocatableResourcesResponse()


@contextlib.contextmanager
def joined(directory: Path) -> Any:
    """Join a slot as the hook does; yield its grant page."""
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        sock.connect(str(directory / "agent.sock"))
        head = join.Message(join.MESSAGE_MAGIC, join.MessageType.HELLO)
        version = layout.LAYOUT_VERSION
        sock.send(bytes(join.Hello(head, version, version, 0, os.getpid(), 0, 0, b"bench", b"0")))
        _, descriptors, _, _ = socket.recv_fds(sock, join.MESSAGE_MAX, 8)
        for each in descriptors:
            stack.callback(os.close, each)
        sock.send(bytes(join.Ready(join.Message(join.MESSAGE_MAGIC, join.MessageType.READY))))
        page = mmap.mmap(descriptors[1], layout.PAGE_SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
        stack.callback(page.close)
        yield page


def limit(page: mmap.mmap) -> int:
    """Return the memory limit in a grant page."""
    whole = layout.GrantPage.from_buffer_copy(page)
    return int(whole.copy[whole.current].memory_limit_bytes)


@contextlib.asynccontextmanager
async def pod(cluster: Cluster, name: str) -> AsyncIterator[str]:
    """Create namespace `name` with a share, and a pod on node `name`; yield the share's API path."""
    await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    path = f"/api/v1/namespaces/{name}/pods"
    try:
        deadline = time.monotonic() + LATE_S
        account = f"/api/v1/namespaces/{name}/serviceaccounts?fieldSelector=metadata.name%3Ddefault"
        while not json.loads(await cluster.ask("GET", account))["items"] and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        core, shares = f"/api/v1/namespaces/{name}", f"/apis/{API_VERSION}/namespaces/{name}/gpushares"
        await cluster.ask("POST", f"{core}/serviceaccounts", {"metadata": {"name": AGENT}})
        await cluster.ask("POST", f"{core}/configmaps", {"metadata": {"name": OPERATOR}})
        share = {"priority": "be", "selector": {"matchLabels": {"app": "pod"}}, "memory": {"limit": "1Mi"}}
        head = {"apiVersion": API_VERSION, "kind": "GPUShare", "metadata": {"name": "share"}}
        await cluster.ask("POST", shares, {**head, "spec": share})
        container = {"name": "main", "image": "none", "resources": {"limits": {"orion.gpu/be": "1"}}}
        meta = {"name": "pod", "labels": {"app": "pod", PRIORITY_LABEL: "be"}, "annotations": {"orion/priority": "be"}}
        await cluster.ask("POST", path, {"metadata": meta, "spec": {"nodeName": name, "containers": [container]}})
        yield f"{shares}/share"
    finally:
        await cluster.ask("DELETE", f"/apis/{API_VERSION}/namespaces/{name}/gpushares")
        await cluster.ask("DELETE", f"{path}?gracePeriodSeconds=0")
        await cluster.ask("DELETE", f"/api/v1/namespaces/{name}")


async def token(cluster: Cluster, name: str, folder: Path) -> Path:
    """Write the token of an agent's pod on node `name` into a file; return the file."""
    core = f"/api/v1/namespaces/{name}"
    spec = {"nodeName": name, "serviceAccountName": AGENT, "containers": [{"name": "agent", "image": "none"}]}
    await cluster.ask("POST", f"{core}/pods", {"metadata": {"name": "agent"}, "spec": spec})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "agent"}
    wanted = {"spec": {"audiences": [AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound}}
    made = json.loads(await cluster.ask("POST", f"{core}/serviceaccounts/{AGENT}/token", wanted))
    file = folder / "token"
    file.write_text(made["status"]["token"])
    return file


async def change(server: ApiServer, path: str, page: mmap.mmap, changes: int) -> list[float]:
    """Change the share repeatedly; return the duration of each change in seconds."""
    seconds = []
    for number in range(2, changes + 2):
        begin = time.perf_counter()
        asked = asyncio.create_task(server.patch(path, {"spec": {"memory": {"limit": f"{number}Mi"}}}))
        while limit(page) != number * 2**20:
            await asyncio.sleep(0)
            if time.perf_counter() - begin > LATE_S:
                raise SystemExit(f"change {number} did not arrive within {LATE_S:g} s")
        seconds.append(time.perf_counter() - begin)
        await asked
        await asyncio.sleep(0.02)
    return seconds


async def run(options: argparse.Namespace, folder: Path) -> list[float]:
    """Start all parts, measure, and clean up."""
    access = find_access(options.kubeconfig)
    cluster, name, server = Cluster(access), f"orion-bench-{uuid.uuid4().hex[:8]}", ApiServer(access, "orion-bench")
    kubelet, answering = StandInKubelet(name, "pod"), grpc.aio.server()
    api_pb2_grpc.add_PodResourcesListerServicer_to_server(kubelet, answering)  # type: ignore[no-untyped-call]
    answering.add_insecure_port(f"unix:{folder}/kubelet.sock")
    await answering.start()
    reported = ["--root", str(folder / "root"), "--gpus", "simulated", "--metrics-address", "", "--node-name", name]
    reported += ["--kubeconfig", str(options.kubeconfig), "--pod-resources", f"{folder}/kubelet.sock"]
    try:
        async with pod(cluster, name) as path:
            port = free_port()
            serving = ["operator", "--kubeconfig", str(options.kubeconfig), "--namespace", name, "--address", ""]
            serving += ["--lease-namespace", name, "--node-pods-name", "localhost"]
            serving += ["--node-pods-address", f"127.0.0.1:{port}"]
            file = await token(cluster, name, folder)
            reported += ["--operator", f"{name}/{OPERATOR}", "--operator-address", f"localhost:{port}"]
            reported += ["--operator-token", str(file)]
            with (
                process("orion.cli", *serving, until="node agents are served"),
                process("orion.node_agent", *reported, until=" agent: serves "),
            ):
                with AgentClient(folder / "root") as administrator:
                    kubelet.gpu = administrator.snapshot().gpus[0].uuid
                    found = await asyncio.to_thread(administrator.prepare_slot, kubelet.gpu, SLOT)
                    say(f"the slot of {found.pod} is ready")
                with joined(folder / "root" / "gpus" / kubelet.gpu / SLOT) as page:
                    return await change(server, path, page, options.changes)
    finally:
        with contextlib.suppress(SystemExit):
            await cluster.ask("DELETE", f"{DEVICES}/{kubelet.gpu.lower()}")
        await answering.stop(None)
        await server.close()
        await cluster.close()


def main() -> int:
    """Measure, print the figures, and write the raw data."""
    parser = OneSentenceParser(prog="grant_change", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="kubeconfig of a test cluster's administrator")
    parser.add_argument("--changes", type=counted, default=500, help="number of changes (default 500)")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as grant_change.json")
    options = parser.parse_args()
    raw = raw_data.header("measurements.cluster.grant_change") | conditions() | {"load_before": os.getloadavg()[0]}
    for path, name in ((options.kubeconfig, "KUBECONFIG"), (options.out, "FILE")):
        raw["command"] = raw["command"].replace(str(path), name)
    with tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp") as folder:
        seconds = asyncio.run(run(options, Path(folder)))
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    say(f"{len(seconds)} changes: p50 {1e3 * cuts[49]:.1f} ms, p99 {1e3 * cuts[98]:.1f} ms, "
        f"max {1e3 * max(seconds):.1f} ms")  # fmt: skip
    raw_data.write(options.out, raw | {"seconds": raw_data.rounded(seconds), "load_after": os.getloadavg()[0]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
