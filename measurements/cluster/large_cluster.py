"""Measures the operator with 100,000 pods, of which 20,000 are Orion's, and the agents of 5,000 nodes.

    python -m testbed up --no-node --folder FOLDER && kubectl apply --server-side -f charts/orion/files/crds
    python -m measurements.cluster.large_cluster --cluster FOLDER --output FILE

API server, etcd and the operator, as a separate process, are real. Nodes and pods are objects without a kubelet. A pod
is 5.3 KB, a node 8.1 KB, as JSON. Each agent is a TLS connection of its own, with a token of its own that the API
server issues for a pod on the agent's node and reviews for the operator; the agents run in this process. When the
operator starts again, each agent reads its new certificate and connects again, as real ones do.

A restart is over when the operator holds the Lease, nothing waits to be reconciled, and every agent has been sent the
pods of its node. The script also measures resident memory, and writes and CPU time at rest.
"""

import argparse
import asyncio
import asyncio.sslproto
import json
import os
import platform
import random
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from measurements.cluster.calling_agents import Agents
from measurements.cluster.copied_objects import Etcd
from measurements.cluster.large_cluster_objects import AGENTS, KINDS, OURS_OF_A_NODE, SHARES, LargeCluster, share, space
from measurements.cluster.operator_scale import Operator
from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from testbed.ports import free_port


async def measure(cluster: LargeCluster, api: ApiServer, operator: Operator, agents: Agents, rest: float) -> Any:
    """Return all figures, in seconds, writes and MiB."""
    found: dict[str, Any] = {"first_start": await _start(operator, agents, cluster.nodes)}
    print(json.dumps(found), flush=True)
    for name, number in (("restart", signal.SIGTERM), ("restart_after_kill", signal.SIGKILL)):
        await operator.stop(number)
        found[name] = await _start(operator, agents, cluster.nodes)
        print(json.dumps({name: found[name]}), flush=True)
    await asyncio.sleep(10)
    await operator.callbacks()
    before, began, spent = await operator.writes(), time.monotonic(), operator.cpu()
    await asyncio.sleep(rest)
    after, cpu, took = await operator.writes(), operator.cpu() - spent, time.monotonic() - began
    found["at_rest"] = {"seconds": took, "cpu_s": cpu, "writes": {key: after[key] - before[key] for key in after}}
    found["at_rest"] |= {"memory_mib": operator.memory(), "loop": await operator.callbacks()}
    print(json.dumps({"at_rest": found["at_rest"]}), flush=True)
    times = [await _change(api, agents, each, cluster.nodes) for each in range(10)]
    found["change_of_10_pods"] = {
        "until_status_s": [round(status, 3) for status, _ in times],
        "until_status_median_s": statistics.median(status for status, _ in times),
        "until_agents_median_s": statistics.median(notified for _, notified in times),
        "loop": await operator.callbacks(),
    }
    return found


async def _start(operator: Operator, agents: Agents, nodes: int) -> dict[str, Any]:
    """Start the operator; return when it was ready, had reconciled everything, and had notified all agents."""
    began = time.monotonic()
    found: dict[str, Any] = {"load": os.getloadavg()[0], "ready_s": await operator.start()}
    found["ready_cpu_s"] = operator.cpu()

    async def all_notified() -> float:
        while sum(each > began for each in agents.notified.values()) < nodes:
            await asyncio.sleep(0.1)
        return time.monotonic() - began

    telling = asyncio.create_task(all_notified())
    await operator.settled()
    found |= {"settled_s": time.monotonic() - began, "settled_cpu_s": operator.cpu()}
    found |= {"agents_notified_s": await telling, "agents_notified_cpu_s": operator.cpu()}
    found |= {"writes": await operator.writes(), "memory_mib": operator.memory()}
    return found | {"loop": await operator.callbacks()}


async def _change(api: ApiServer, agents: Agents, number: int, nodes: int) -> tuple[float, float]:
    """Change a share; return the seconds until its status says so, and until its pods' agents have been notified."""
    path = f"{KINDS}/namespaces/{space(number)}/gpushares/{share(number)}"
    pods = range(number, nodes * OURS_OF_A_NODE, SHARES)
    began = time.monotonic()
    changed = await api.patch(path, {"spec": {"memory": {"limit": f"{random.randint(5, 10_000)}Mi"}}})
    status = notified = 0.0
    while not (status and notified):
        await asyncio.sleep(0.02)
        conditions = (await api.get(path)).get("status", {}).get("conditions", ())
        observed = [each.get("observedGeneration") for each in conditions if each["type"] == "Ready"]
        if not status and observed == [changed["metadata"]["generation"]]:
            status = time.monotonic() - began
        if not notified and all(agents.notified[each // OURS_OF_A_NODE] > began for each in pods):
            notified = time.monotonic() - began
    return status, notified


async def main() -> None:
    """Make the cluster's objects, measure, and write the raw data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", type=Path, required=True, help="the folder of a cluster of the testbed")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=5_000, help="each with one GPU, 20 pods and an agent")
    parser.add_argument("--made", action="store_true", help="reuse the objects of an earlier run")
    parser.add_argument("--rest", type=float, default=90, help="seconds to measure when idle")
    options = parser.parse_args()
    asyncio.sslproto.SSLProtocol.max_size = 16 * 1024  # else each of this process's connections takes 256 KiB
    kubeconfig = options.cluster / "kubeconfig"
    api = ApiServer(find_access(kubeconfig), "orion-bench", concurrency=32, attempt_s=120)
    etcd, began = Etcd(options.cluster), time.monotonic()
    cluster = LargeCluster(api, etcd, options.nodes)
    port = free_port()
    serve = ["--node-pods-address", f"127.0.0.1:{port}", "--node-pods-name", "localhost"]
    serve += ["--node-pods-agents", f"{AGENTS}/agent"]
    operator = Operator(kubeconfig, options.output.with_suffix(".log"), serve)
    try:
        if not options.made:
            await cluster.make()
            print(f"objects made in {time.monotonic() - began:.0f} s", flush=True)
        await cluster.until_listed()
        tokens = await asyncio.gather(*(cluster.token(number) for number in range(options.nodes)))
        print(f"tokens issued after {time.monotonic() - began:.0f} s", flush=True)
        agents = Agents(api, port, list(tokens), OURS_OF_A_NODE)
        async with agents.connected(options.nodes):
            raw = {"cores": os.cpu_count(), "python": platform.python_version(), "load_at_start": os.getloadavg()}
            found = {"nodes": options.nodes, "pods": options.nodes * 20, "machine": raw}
            found |= await measure(cluster, api, operator, agents, options.rest)
            raw["load_at_end"] = os.getloadavg()
            options.output.write_text(json.dumps(found, indent=1))
            print(json.dumps(found, indent=1))
    finally:
        if operator.process is not None and operator.process.returncode is None:
            await operator.stop(signal.SIGTERM)
        await etcd.close()
        await api.close()


if __name__ == "__main__":
    asyncio.run(main())
    sys.exit()
