"""Measures how a be pod slows an hp pod on one GPU (the README's table): `python -m measurements.cluster.pods_latency`.

The example's server runs as a pod all the time and reports its requests' latency. In each phase, one of these runs
beside the server:

    alone        nothing
    unmanaged    the example's training without Orion: it uses the simulated GPU from the node's files, without a slot
    orion        the same training in a be slot

It needs a node of a cluster with Orion and exactly one simulated GPU, so that both pods are on it. With `make cluster`:

    python -m testbed on node-1 -- .venv/bin/python -m measurements.cluster.pods_latency --kubeconfig FILE

A simulated GPU shows whether Orion works. It does not show the performance of a real GPU. If other programs keep the
cores busy, the simulation is delayed, and the latency of `alone` is higher, too.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import uuid
from pathlib import Path
from typing import Any

import yaml

from measurements.cluster.webhook_in_cluster import Cluster
from measurements.cluster.webhook_load import conditions
from orion.api_server.credentials import find_access
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from orion.hook import simulated

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PHASES = ("alone", "unmanaged", "orion")
REPORT_S = 10
""" Seconds between two reports of a pod. A report of the server covers 500 requests. """
POLL_S = 0.5
PATIENCE_S = 120.0

Manifest = dict[str, Any]


def server() -> Manifest:
    """Return the example's hp pod."""
    deployment = next(yaml.safe_load_all((EXAMPLES / "serve.yaml").read_text()))
    return _named(dict(deployment["spec"]["template"]), "serve")


def training(name: str) -> Manifest:
    """Return a pod of the example's training Deployment."""
    template = yaml.safe_load((EXAMPLES / "train.yaml").read_text())["spec"]["template"]
    return _named(dict(template), name)


def without_slot(pod: Manifest, gpu: str, library: Path, state: Path) -> Manifest:
    """Return the same pod without a slot: it mounts the simulated GPU from the node's files.

    Args:
        pod: changed in place.
        gpu: the GPU's UUID.
        library: the simulated driver, as the node sees it.
        state: the folder of the node's simulated GPUs.
    """
    needs = simulated.container_needs(library, state, [gpu])
    container = pod["spec"]["containers"][0]
    del pod["metadata"]["annotations"], container["resources"]["limits"]
    container["env"] = [{"name": name, "value": value} for name, value in needs.environment.items()]
    container["volumeMounts"], pod["spec"]["volumes"] = [], []
    for number, mount in enumerate(needs.mounts):
        name, target = f"gpu-{number}", mount.container_path
        pod["spec"]["volumes"].append({"name": name, "hostPath": {"path": str(mount.host_path)}})
        container["volumeMounts"].append({"name": name, "mountPath": target, "readOnly": mount.read_only})
    return pod


def _named(pod: Manifest, name: str) -> Manifest:
    pod["metadata"] |= {"name": name, "labels": {"app": name}}
    pod["spec"] |= {"terminationGracePeriodSeconds": 2}
    pod["spec"]["containers"][0]["args"] += ["--report", str(REPORT_S)]
    return pod


class Bench:
    """One namespace, and the reports of its pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._name = cluster, f"orion-bench-{uuid.uuid4().hex[:8]}"
        self._pods = f"/api/v1/namespaces/{self._name}/pods"

    async def begin(self) -> None:
        """Make the namespace; return when pods can be created in it."""
        await self._cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self._name}})
        path = f"/api/v1/namespaces/{self._name}/serviceaccounts"
        while not json.loads(await self._cluster.ask("GET", path))["items"]:
            await asyncio.sleep(POLL_S)

    async def end(self) -> None:
        """Remove everything that was made."""
        await self._cluster.ask("DELETE", f"{self._pods}?gracePeriodSeconds=1")
        await self._cluster.ask("DELETE", f"/api/v1/namespaces/{self._name}")

    async def create(self, pod: Manifest) -> dict[str, Any]:
        """Create a pod; return its first report once it uses its GPU."""
        await self._cluster.ask("POST", self._pods, pod)
        return (await self._events(pod["metadata"]["name"], "ready", 1))[0]

    async def delete(self, name: str) -> None:
        """Delete a pod; return when it is gone."""
        await self._cluster.ask("DELETE", f"{self._pods}/{name}")
        while any(each["metadata"]["name"] == name for each in await self._all()):
            await asyncio.sleep(POLL_S)

    async def reports(self, name: str, count: int) -> list[dict[str, Any]]:
        """Return a pod's next reports, without the one for the current interval."""
        before = len(await self._events(name, "report", 0))
        return (await self._events(name, "report", before + 1 + count))[-count:]

    async def _all(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(await self._cluster.ask("GET", self._pods))["items"]
        return found

    async def _events(self, name: str, event: str, count: int) -> list[dict[str, Any]]:
        """Return the lines of a pod's log with this event, once there are at least `count`."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                running = any(
                    e["metadata"]["name"] == name and e["status"]["phase"] == "Running" for e in await self._all()
                )
                log = await self._cluster.ask("GET", f"{self._pods}/{name}/log") if running else ""
                lines = [json.loads(line) for line in log.splitlines(keepends=True) if line.endswith("}\n")]
                found = [line for line in lines if line["event"] == event]
                if running and len(found) >= count:
                    return found
                await asyncio.sleep(POLL_S)

    async def phase(self, name: str, gpu: str, reports: int) -> dict[str, Any]:
        """Run the server beside the phase's pod; return the reports of both."""
        if name == "alone":
            return {"hp": await self.reports("serve", reports), "be": []}
        pod = training(name)
        if name == "unmanaged":
            library = next(Path("/var/lib/orion/hook").glob("*/simulated-libcuda.so.1"))
            without_slot(pod, gpu, library, simulated.state_folder())
        begun = await self.create(pod)
        if begun["gpu"] != gpu:
            raise SystemExit(f"the be pod got {begun['gpu']}, the hp pod has {gpu}: use a node with one GPU")
        hp, be = await asyncio.gather(self.reports("serve", reports), self.reports(name, reports))
        await self.delete(name)
        return {"hp": hp, "be": be}


async def measure(options: argparse.Namespace, raw: dict[str, Any]) -> None:
    """Run all rounds; put the pods' reports into `raw`."""
    cluster = Cluster(find_access(options.kubeconfig))
    bench = Bench(cluster)
    try:
        await bench.begin()
        gpu = (await bench.create(server()))["gpu"]
        raw["rounds"] = []
        for number in range(options.rounds):
            found: dict[str, Any] = {}
            for phase in PHASES if number % 2 == 0 else PHASES[::-1]:
                load = os.getloadavg()[0]
                found[phase] = {"load_before": load} | await bench.phase(phase, gpu, options.reports)
                p99 = statistics.median(report["p99_ms"] for report in found[phase]["hp"])
                say(f"round {number + 1} of {options.rounds}, {phase}: hp p99 {p99:.1f} ms")
            raw["rounds"].append(found)
    finally:
        await bench.end()
        await cluster.close()


def table(raw: dict[str, Any]) -> str:
    """Return a Markdown table: medians over all reports; ratios are taken within each round."""
    rows = ["| beside the hp pod | hp p50 | hp p99 | p99 / alone | be steps/s |", "|---|---|---|---|---|"]
    for phase in PHASES:
        hp = [report for turn in raw["rounds"] for report in turn[phase]["hp"]]
        be = [report["steps_per_s"] for turn in raw["rounds"] for report in turn[phase]["be"]]
        ratios = sorted(_p99(turn, phase) / _p99(turn, "alone") for turn in raw["rounds"])
        p50, p99 = (statistics.median(report[key] for report in hp) for key in ("p50_ms", "p99_ms"))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})" if phase != "alone" else "1"
        steps = f"{statistics.median(be):.1f}" if be else ""
        rows.append(f"| {_NAMES[phase]} | {p50:.1f} ms | {p99:.1f} ms | {spread} | {steps} |")
    return "\n".join(rows)


_NAMES = {"alone": "nothing", "unmanaged": "training, unmanaged", "orion": "training, a be pod"}


def _p99(turn: dict[str, Any], phase: str) -> float:
    p99: float = statistics.median(report["p99_ms"] for report in turn[phase]["hp"])
    return p99


def main() -> int:
    """Measure, print the table, and write the raw data."""
    parser = OneSentenceParser(prog="pods_latency", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="kubeconfig of a test cluster's administrator")
    parser.add_argument("--rounds", type=counted, default=5, help="rounds of all three phases (default: %(default)s)")
    parser.add_argument("--reports", type=counted, default=2, help="hp reports in each phase (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as pods_latency.json")
    options = parser.parse_args()
    raw = raw_data.header("measurements.cluster.pods_latency") | conditions()
    raw["command"] = raw["command"].replace(str(options.kubeconfig), "KUBECONFIG")
    asyncio.run(measure(options, raw))
    say(table(raw))
    raw_data.write(options.out, raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
