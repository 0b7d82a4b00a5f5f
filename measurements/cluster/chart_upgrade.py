"""Measures how long installing and upgrading the chart take, and how they affect pods.

    python -m measurements.cluster.chart_upgrade

It starts its own cluster (needs root; takes half a minute). Each round installs Orion, lets the example's server and
training compute in their slots, upgrades to an Orion of another version, whose pages have another layout, rolls back,
and uninstalls everything. chart_disturbance.py watches the effects; every two seconds the server reports its requests'
latency.

On simulated GPUs the 99th percentile of the latency mostly shows other work of the CPU cores, such as starting the new
pods. So the results show whether requests fail, but not the latency on a real GPU.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kubernetes import client, config

from measurements.cluster import pods_latency
from measurements.cluster.chart_disturbance import Client, Clients, Watch
from measurements.cluster.webhook_load import conditions
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from orion.node_agent.api.client import AgentClient, NoAgent
from testbed import binaries, example_image, orion_image
from testbed.cluster import Cluster
from testbed.release import Release, image_name
from testbed.waiting import wait_until

VALUES = {"simulatedGPUs": 1, "mps.enabled": True, "crds.keep": False}
NEWER = "newer"
NAMESPACE = "bench"
REPORT_S = "2"
SERVER_CPU = "1"
""" The server requests one of the machine's two cores. Otherwise, pods that start would take the server's CPU time. """
CALM_S = 20.0
""" How long the server runs undisturbed before each change, for comparison. """
PATIENCE_S = 120.0


class Tenants:
    """An hp pod and a be pod on the cluster's node."""

    def __init__(self, cluster: Cluster, api: client.ApiClient) -> None:
        (self._node,) = cluster.nodes.values()
        self._core = client.CoreV1Api(api)

    def begin(self) -> None:
        """Create the namespace and the pods; return when both pods have joined."""
        self._core.create_namespace({"metadata": {"name": NAMESPACE}})
        _until(lambda: self._core.list_namespaced_service_account(NAMESPACE).items)
        for pod in (pods_latency.server(), pods_latency.training("train")):
            container = pod["spec"]["containers"][0]
            container["args"] += ["--report", REPORT_S]
            limits = container["resources"]["limits"]
            if pod["metadata"]["name"] == "serve":
                container["resources"]["requests"]["cpu"] = SERVER_CPU
            container["resources"]["limits"] = {name: str(amount) for name, amount in limits.items()}
            self._core.create_namespaced_pod(NAMESPACE, {"apiVersion": "v1", "kind": "Pod", **pod})
        _until(lambda: self.served() and len(self.clients()) == 2)

    def end(self) -> None:
        """Remove the namespace and the pods."""
        self._core.delete_namespace(NAMESPACE)
        _until(lambda: not self._core.list_namespace(field_selector=f"metadata.name={NAMESPACE}").items)

    def clients(self) -> Clients:
        """Return the agent's clients.

        Raises:
            NoAgent: no agent answers.
        """
        with AgentClient(Path(f"/proc/{self._node.init}/root/run/orion")) as agent:
            return {
                each.process_id: Client(gpu.uuid, slot.name, each.place, each.generation)
                for gpu in agent.snapshot().gpus
                for slot in gpu.slots
                for each in slot.clients
            }

    def trial(self) -> None:
        """Create a pod as a dry run.

        Raises:
            client.ApiException: the API server rejected it.
        """
        pod = {"apiVersion": "v1", "kind": "Pod", **pods_latency.training("trial")}
        pod["spec"]["containers"][0]["resources"]["limits"] = {"orion.gpu/be": "1"}
        self._core.create_namespaced_pod(NAMESPACE, pod, dry_run="All")

    def served(self) -> list[dict[str, Any]]:
        """Return the server's reports so far; none before its container has started."""
        try:
            log = str(self._core.read_namespaced_pod_log("serve", NAMESPACE, _preload_content=False).data.decode())
        except client.ApiException as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            return []
        lines = [json.loads(line) for line in log.splitlines(keepends=True) if line.endswith("}\n")]
        return [line for line in lines if line["event"] == "report"]

    def failed(self) -> int:
        """Return how many requests or steps failed. A program exits when one fails, so the function counts restarts."""
        pods = self._core.list_namespaced_pod(NAMESPACE).items
        return sum(status.restart_count for pod in pods for status in pod.status.container_statuses or ())


def change(tenants: Tenants, act: Callable[[], float]) -> dict[str, Any]:
    """Change the release while the tenants compute; return the duration and the effects on the tenants."""
    begun = len(tenants.served())
    time.sleep(CALM_S)
    calm = len(tenants.served())
    clients, failed = tenants.clients(), tenants.failed()
    with Watch(tenants.clients, tenants.trial, clients, NoAgent, client.ApiException) as watch:
        seconds = act()
        _until(lambda: tenants.clients() == clients)
        ended = len(tenants.served())
        _until(lambda: len(tenants.served()) > ended)
    reports = tenants.served()
    before, during = reports[begun + 1 : calm], reports[calm : ended + 1]
    ratio = _p99(during) / _p99(before)
    say(f"  {seconds:.1f} s, {tenants.failed() - failed} failed, p99 x {ratio:.2f}, {len(watch.seen.refusals)} refused")
    return {
        "seconds": round(seconds, 3),
        "failed": tenants.failed() - failed,
        "requests": sum(each["count"] for each in during),
        "p99_ratio": round(ratio, 4),
        "before": before,
        "during": during,
        "noticed": asdict(watch.seen),
    }


def measure(cluster: Cluster, rounds: int, raw: dict[str, Any]) -> None:
    """Run all rounds; put their results into `raw`."""
    settings = client.Configuration()
    config.load_kube_config(str(cluster.access.kubeconfig), client_configuration=settings)
    settings.proxy = None
    release = Release(cluster.access)
    with client.ApiClient(settings) as api:
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            found: dict[str, Any] = {"load_before": os.getloadavg()[0], "install_s": round(release.install(VALUES), 3)}
            say(f"  installed in {found['install_s']:.1f} s")
            tenants = Tenants(cluster, api)
            _until(lambda: all(release.allocatable("node-1").values()))
            tenants.begin()
            found["upgrade"] = change(tenants, lambda: release.upgrade({**VALUES, "image.tag": NEWER}))
            found["rollback"] = change(tenants, release.rollback)
            tenants.end()
            found["uninstall_s"] = round(release.uninstall(), 3)
            raw["rounds"].append(found)


def summary(raw: Mapping[str, Any]) -> str:
    """Return a Markdown table: medians over rounds, with minimum and maximum."""
    rows = ["| | seconds | failed requests | unmanaged | pods refused | hp p99 / before |", "|---|---|---|---|---|---|"]
    rows.append(f"| install | {_spread([each['install_s'] for each in raw['rounds']], 1)} | | | | |")
    for what in ("upgrade", "rollback"):
        turns = [each[what] for each in raw["rounds"]]
        seconds, ratio = _spread([t["seconds"] for t in turns], 1), _spread([t["p99_ratio"] for t in turns], 2)
        failed = f"{sum(t['failed'] for t in turns)} of {sum(t['requests'] for t in turns)}"
        unmanaged, refused = (sum(len(t["noticed"][key]) for t in turns) for key in ("changed", "refusals"))
        rows.append(f"| {what} | {seconds} | {failed} | {unmanaged} | {refused} | {ratio} |")
    return "\n".join(rows)


def _spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _p99(reports: list[dict[str, Any]]) -> float:
    return statistics.mean(float(each["p99_ms"]) for each in reports if each["count"])


def _until(condition: Callable[[], object]) -> None:
    """Return when a condition is met; the condition counts as not met while no agent answers."""

    def met() -> bool:
        with contextlib.suppress(NoAgent):
            return bool(condition())
        return False

    wait_until(met, "the tenants did not reach the expected state", patience=PATIENCE_S)


@contextlib.contextmanager
def _cluster_with_images() -> Iterator[Cluster]:
    """Start a cluster of one node, with both images."""
    archives = [
        orion_image.build(say, image_name()),
        orion_image.build(say, image_name(NEWER), NEWER),
    ]
    with tempfile.TemporaryDirectory(prefix="orion-bench-") as folder:
        archives.append(example_image.example().write(Path(folder) / "example.tar"))
        with Cluster(Path(folder) / "cluster", binaries.find_all(), ["node-1"]) as cluster:
            for archive in archives:
                cluster.nodes["node-1"].import_image(archive)
            yield cluster


def main() -> int:
    """Measure, print the table, and write the raw data."""
    parser = OneSentenceParser(prog="chart_upgrade", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=counted, default=5, help="number of rounds (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as chart_upgrade.json")
    options: argparse.Namespace = parser.parse_args()
    raw: dict[str, Any] = raw_data.header("measurements.cluster.chart_upgrade") | conditions() | {"rounds": []}
    with _cluster_with_images() as cluster:
        measure(cluster, options.rounds, raw)
    say("\n" + summary(raw))
    raw_data.write(options.out, raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
