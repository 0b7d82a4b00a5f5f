"""Measures what the operator costs with 2,000 shares and 10,000 pods on a real API server, with fake nodes and agents.

    make cluster ARGS=--no-node && kubectl apply --server-side -f charts/orion/files/crds
    python -m measurements.cluster.operator_scale --kubeconfig ~/.cache/orion/cluster/kubeconfig --output FILE

No pod runs: nodes are objects without a kubelet, and this script writes the statuses that kubelets and node agents
would write. Everything else is real: API server, etcd, and the operator as a separate process. The script measures the
time from start to ready, the resident memory, the writes (when idle, and while figures change), how long changes of a
share with 10 pods and of one with 1,000 take, and how long the operator's loop is blocked meanwhile.

The share with 10 pods is also changed while a user of another namespace changes shares all the time: 200 shares whose
selectors only exclude, so that each must be compared with all 1,000 pods of that namespace.
"""

import argparse
import asyncio
import json
import os
import platform
import signal
import statistics
import sys
import time
import urllib.request
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiError, ApiServer
from orion.crds.annotations import PRIORITY_LABEL
from orion.crds.model import API_VERSION
from testbed.ports import free_port
from testbed.process_costs import cpu_seconds, memory_kib

WIDE, NARROW = "wide", "narrow"
PODS_OF = {WIDE: 1_000, NARROW: 10}
CHANGES = {WIDE: 5, NARROW: 20}
""" How often the share is changed. """
NAMESPACES = 20
BUSY = "scale-busy"
BUSY_SHARES, BUSY_PODS = 200, 1_000
PODS_OF_A_GPU = 8
GPUS_OF_A_NODE = 8
AT_ONCE = 32
_SHARES = f"/apis/{API_VERSION}"


class Cluster:
    """Makes the objects of the cluster, and writes the statuses that kubelets and agents would write."""

    def __init__(self, api: ApiServer, shares: int, pods: int) -> None:
        self.api, self._shares, self._pods = api, shares, pods

    def placed(self) -> Iterator[tuple[str, str, str]]:
        """Yield each pod's namespace, name and share: some shares have `PODS_OF`, the others divide the rest."""
        for name, pods in PODS_OF.items():
            for number in range(pods):
                yield _namespace(0), f"{name}-{number}", name
        for number in range(self._pods - sum(PODS_OF.values())):
            share = number % (self._shares - len(PODS_OF))
            yield _namespace(share), f"pod-{number}", f"share-{share}"

    async def make(self) -> None:
        """Make all objects; leave those that exist unchanged."""
        await _all(self._make("/api/v1/namespaces", _object(_namespace(n))) for n in range(NAMESPACES))
        await asyncio.sleep(2)  # until the service accounts exist
        pods = list(self.placed())
        nodes = -(-len(pods) // (PODS_OF_A_GPU * GPUS_OF_A_NODE))
        await _all(self._make("/api/v1/nodes", _object(_node(n))) for n in range(nodes))
        await _all(self._make_share(_namespace(n), f"share-{n}") for n in range(self._shares - len(PODS_OF)))
        await _all(self._make_share(_namespace(0), name) for name in PODS_OF)
        await _all(self._make_pod(number, *pod) for number, pod in enumerate(pods))
        await self.report(ratio=0.5)

    async def report(self, ratio: float) -> None:
        """Write each GPU's status as its agent would; it says that each be client waited for `ratio` of the time."""
        pods = list(self.placed())
        groups = [pods[first : first + PODS_OF_A_GPU] for first in range(0, len(pods), PODS_OF_A_GPU)]
        await _all(self._report(number, group, ratio) for number, group in enumerate(groups))

    async def make_busy(self) -> None:
        """Make the namespace whose shares change all the time."""
        await self._make("/api/v1/namespaces", _object(BUSY))
        await asyncio.sleep(2)  # until the service account exists
        await _all(self._make_pod(0, BUSY, f"busy-{number}", "none") for number in range(BUSY_PODS))
        path = f"{_SHARES}/namespaces/{BUSY}/gpushares"
        spec = {"priority": "be", "selector": _excluding(0)}
        body = {"apiVersion": API_VERSION, "kind": "GPUShare", "spec": spec}
        await _all(self._make(path, body | _object(f"busy-{number}")) for number in range(BUSY_SHARES))

    async def keep_busy(self, number: int) -> None:
        """Change shares of the busy namespace, one after the other, until cancelled."""
        while True:
            number += 7
            path = f"{_SHARES}/namespaces/{BUSY}/gpushares/busy-{number % BUSY_SHARES}"
            await self.api.patch(path, {"spec": {"selector": _excluding(number)}})

    async def change(self, share: str) -> float:
        """Change a share's memory limit; return the seconds until its status says that all of its pods have it."""
        path = f"{_SHARES}/namespaces/{_namespace(0)}/gpushares/{share}"
        found = await self.api.get(path)
        limit = f"{found['metadata']['generation'] + 4}Gi"
        changed = await self.api.patch(path, {"spec": {"memory": {"limit": limit}}})
        began = time.monotonic()
        while not _granted(changed, changed["metadata"]["generation"]):
            await asyncio.sleep(0.02)
            changed = changed | await self.api.get(path)
        return time.monotonic() - began

    async def _make(self, path: str, body: dict[str, Any]) -> None:
        try:
            await self.api.post(path, body)
        except ApiError as error:
            if error.status != 409:
                raise

    async def _make_share(self, namespace: str, name: str) -> None:
        selector = {"matchLabels": {"app": name}}
        spec = {"priority": "be", "selector": selector, "memory": {"limit": "4Gi"}, "compute": {"request": 0.4}}
        body = {"apiVersion": API_VERSION, "kind": "GPUShare", **_object(name), "spec": spec}
        await self._make(f"{_SHARES}/namespaces/{namespace}/gpushares", body)

    async def _make_pod(self, number: int, namespace: str, name: str, share: str) -> None:
        body = _object(name)
        body["metadata"] |= {"labels": {"app": share, PRIORITY_LABEL: "be"}, "annotations": {"orion/priority": "be"}}
        limits = {"limits": {"orion.gpu/be": "1", "cpu": "2", "memory": "8Gi"}}
        container = {"name": "main", "image": "registry.example/training:1", "resources": limits}
        body["spec"] = {"containers": [container], "nodeName": _node(number // (PODS_OF_A_GPU * GPUS_OF_A_NODE))}
        await self._make(f"/api/v1/namespaces/{namespace}/pods", body)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})

    async def _report(self, number: int, pods: list[tuple[str, str, str]], ratio: float) -> None:
        uuid, node = f"GPU-{number:08x}-0000-4000-8000-000000000000", _node(number // GPUS_OF_A_NODE)
        slots, clients = [], []
        for index, (namespace, name, share) in enumerate(pods):
            row = {"slot": f"be-{index}", "priority": "be", "pod": {"namespace": namespace, "name": name}}
            figures = {"memory": "3Gi", "busyRatio": 0.4, "gatedRatio": ratio}
            clients.append({**row, "processId": 1_000 + index, "command": "python", "state": "running", **figures})
            slots.append({"name": f"be-{index}", "priority": "be", "pod": row["pod"], "share": share, "clients": 1})
        status: dict[str, Any] = {
            "node": node,
            "uuid": uuid,
            "model": "NVIDIA H200",
            "mode": "timeslice",
            "health": "Healthy",
        }
        status |= {"heldSlots": slots, "clients": clients, "clientCount": len(clients)}
        path = f"{_SHARES}/gpudevices"
        await self._make(path, {"apiVersion": API_VERSION, "kind": "GPUDevice", **_object(uuid.lower()), "spec": {}})
        await self.api.patch(f"{path}/{uuid.lower()}/status", {"status": status})


class Operator:
    """The operator, as a process."""

    def __init__(self, kubeconfig: Path, log: Path, options: Sequence[str] = ()) -> None:
        self._port = free_port()
        self._callbacks = log.with_suffix(".callbacks")
        program = ["measurements.cluster.watched_operator", str(self._callbacks)]
        self._command = [sys.executable, "-m", *program, "--kubeconfig", str(kubeconfig)]
        self._command += ["--address", f"127.0.0.1:{self._port}", "--lease-namespace", "default", *options]
        self._log = log
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> float:
        """Start the operator; return the seconds until it reports that it is ready."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self._command, stderr=log, stdout=log)
        while not await asyncio.to_thread(self._ready):
            assert self.process.returncode is None, f"the operator has ended; see {self._log}"
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def settled(self) -> float:
        """Wait until the operator is the leader and its queue is empty; return the seconds."""
        began = time.monotonic()
        while True:
            found = await self.metrics()
            if found["orion_operator_leader"] == 1 and found["orion_operator_waiting"] == 0:
                return time.monotonic() - began
            await asyncio.sleep(0.2)

    async def stop(self, signal: int) -> None:
        """Send a signal to the operator, and wait until it has ended."""
        assert self.process
        self.process.send_signal(signal)
        await self.process.wait()

    async def metrics(self) -> dict[str, float]:
        """Return the operator's metrics by name and labels."""
        text = await asyncio.to_thread(self._get, "/metrics")
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in lines}

    async def writes(self) -> dict[str, int]:
        """Return the number of writes so far by kind; `requests` counts all write requests, also for the Lease."""
        found = await self.metrics()
        kinds = ("PatchShare", "PatchNode", "PostEvent", "EvictPod")
        done = {kind: _sum(found, f'what="{kind}"', "orion_operator_writes_total") for kind in kinds}
        methods = ("POST", "PUT", "PATCH", "DELETE")
        done["requests"] = sum(_sum(found, f'method="{each}"', "orion_operator_requests_total") for each in methods)
        return done

    async def callbacks(self) -> dict[str, Any]:
        """Return how long the loop's callbacks took since this was last called."""
        assert self.process
        self._callbacks.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        while not self._callbacks.exists():
            await asyncio.sleep(0.05)
        return dict(json.loads(self._callbacks.read_text()))

    def cpu(self) -> float:
        """Return the operator's CPU time in seconds. Unlike wall time, it does not depend on other processes."""
        assert self.process
        return cpu_seconds(self.process.pid)

    def memory(self) -> dict[str, int]:
        """Return the operator's resident memory, now and at its peak, in MiB."""
        assert self.process
        figures = {"now": "VmRSS", "highest": "VmHWM"}
        return {name: memory_kib(self.process.pid, figure) // 1024 for name, figure in figures.items()}

    def _ready(self) -> bool:
        try:
            return self._get("/readyz") == "ok\n"
        except OSError:
            return False

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
            return str(answer.read().decode())


async def measure(cluster: Cluster, operator: Operator, rest: float) -> dict[str, Any]:
    """Return all figures, in seconds, writes and MiB."""
    found: dict[str, Any] = {}
    found["first_start_ready_s"] = await operator.start()
    found["first_start_settled_s"] = found["first_start_ready_s"] + await operator.settled()
    found["first_start_writes"] = await operator.writes()
    found["first_start_memory_mib"] = operator.memory()
    for name, number in (("restart", signal.SIGTERM), ("restart_after_kill", signal.SIGKILL)):
        await operator.stop(number)
        ready = await operator.start()
        found[name] = {"ready_s": ready, "cpu_s": operator.cpu(), "settled_s": ready + await operator.settled()}
        found[name] |= {"writes": await operator.writes(), "memory_mib": operator.memory()}
        found[name]["loop"] = await operator.callbacks()
        print(json.dumps({name: found[name]}), flush=True)
    found["at_rest"] = await _during(operator, rest, asyncio.sleep(rest))
    print(json.dumps({"at_rest": found["at_rest"]}), flush=True)
    found["moving"] = await _during(operator, rest, _move(cluster, rest))
    print(json.dumps({"moving": found["moving"]}), flush=True)
    await asyncio.sleep(31)  # the operator writes figures at most every 30 s (`urgency`): wait for the last write
    for share, times in CHANGES.items():
        found[f"change_{share}"] = await _changes(cluster, operator, share, times)
        print(json.dumps({share: found[f"change_{share}"]}), flush=True)
    await cluster.make_busy()
    await operator.settled()
    async with asyncio.TaskGroup() as group:
        busy = [group.create_task(cluster.keep_busy(each)) for each in range(4)]
        await asyncio.sleep(5)
        found["change_narrow_beside_changes"] = await _changes(cluster, operator, NARROW, CHANGES[NARROW])
        for task in busy:
            task.cancel()
    found["memory_mib"] = operator.memory()
    return found


async def _during(operator: Operator, seconds: float, work: Awaitable[Any]) -> dict[str, Any]:
    before, began, spent = await operator.writes(), time.monotonic(), operator.cpu()
    await work
    took, spent = time.monotonic() - began, operator.cpu() - spent
    after = await operator.writes()
    return {"seconds": took, "cpu_s": spent, "writes": {key: after[key] - before[key] for key in after}}


async def _move(cluster: Cluster, seconds: float) -> None:
    end, step = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        step += 1
        await cluster.report(ratio=0.9 if step % 2 else 0.1)
        await asyncio.sleep(2)


async def _changes(cluster: Cluster, operator: Operator, share: str, times: int) -> dict[str, Any]:
    before, spent = await operator.writes(), operator.cpu()
    await operator.callbacks()
    seconds = []
    for _ in range(times):
        seconds.append(await cluster.change(share))
        await asyncio.sleep(2)
    loop, after = await operator.callbacks(), await operator.writes()
    return {
        "pods": PODS_OF[share],
        "seconds": [round(each, 3) for each in seconds],
        "median_s": round(statistics.median(seconds), 3),
        "longest_s": round(max(seconds), 3),
        "cpu_s": operator.cpu() - spent,
        "writes": {key: after[key] - before[key] for key in after},
        "loop": loop,
    }


def _granted(share: dict[str, Any], generation: int) -> bool:
    ready = (each for each in share.get("status", {}).get("conditions", ()) if each["type"] == "Ready")
    # The fake agents do not report which generation they have applied, so the operator waits for their reports.
    decided = ("Granted", "GrantsPending")
    return any(each.get("observedGeneration") == generation and each["reason"] in decided for each in ready)


def _excluding(number: int) -> dict[str, Any]:
    values = [f"value-{number}-{each}" for each in range(4)]
    return {"matchExpressions": [{"key": f"key-{each}", "operator": "NotIn", "values": values} for each in range(16)]}


async def main() -> None:
    """Make the cluster's objects, measure, and write the raw data."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--shares", type=int, default=2_000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--made", action="store_true", help="reuse the objects of an earlier run")
    parser.add_argument(
        "--rest", type=float, default=90, help="seconds to measure when idle, and again while figures change"
    )
    options = parser.parse_args()
    api = ApiServer(find_access(options.kubeconfig), "orion-bench", concurrency=AT_ONCE, attempt_s=60)
    cluster = Cluster(api, options.shares, options.pods)
    operator = Operator(options.kubeconfig, options.output.with_suffix(".log"))
    began = time.monotonic()
    try:
        if not options.made:
            await cluster.make()
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load_at_start": os.getloadavg()}
        print(f"objects made in {time.monotonic() - began:.0f} s", flush=True)
        found = {"shares": options.shares, "pods": options.pods, "machine": machine}
        found |= await measure(cluster, operator, options.rest)
        found["machine"]["load_at_end"] = os.getloadavg()
        options.output.write_text(json.dumps(found, indent=1))
        print(json.dumps(found, indent=1))
    finally:
        if operator.process is not None and operator.process.returncode is None:
            await operator.stop(15)
        await api.close()


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Await everything, at most AT_ONCE at a time; raise the first failure."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(each: Awaitable[None]) -> None:
        async with gate:
            await each

    await asyncio.gather(*(one(each) for each in work))


def _namespace(number: int) -> str:
    return f"scale-{number % NAMESPACES}"


def _node(number: int) -> str:
    return f"scale-node-{number}"


def _object(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def _sum(found: dict[str, float], label: str, name: str) -> int:
    return round(sum(value for key, value in found.items() if key.startswith(f"{name}{{") and label in key))


if __name__ == "__main__":
    asyncio.run(main())
