"""Measures the latency of an hp Deployment during its rolling update, with and without be pods on its GPU.

    python -m measurements.cluster.rollout_latency

It starts its own cluster of one node with one simulated GPU (needs root; takes half a minute). The example's server
runs as a Deployment with one replica and the default strategy, which starts the new pod before it ends the old one.
Each HTTP request is a request to the GPU, and a client on the node sends requests to the Service at a fixed rate. A
turn restarts the Deployment several times, as `kubectl rollout restart` does. In turns marked `beside`, the example's
training fills all be slots of the GPU; in turns marked `alone`, it runs nowhere. The hp slot is taken in both.

An update lasts from the restart until the old pod is gone and the node offers its usual slots. On a simulated GPU, the
p99 also shows other work of the CPU cores, such as the start of the new pod's container.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from measurements.cluster.webhook_load import conditions, quantile
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from orion.crds.annotations import ROLLOUT
from testbed import binaries
from testbed.cluster import Cluster
from testbed.node import Node
from testbed.orion import Orion
from testbed.waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMESPACE = "bench"
PHASES = ("alone", "beside")
PARTS = (0.5, 0.99)
LEAD_S, CALM_S = 2.0, 10.0
""" Seconds of requests before a turn: those that warm up, and those to compare the turn with. """
PATIENCE_S = 300.0
SERVER_CPU, FAREWELL_S = "300m", 5
""" What the server's pod requests, and how long a pod that ends still answers. """

Manifest = dict[str, Any]


def server(kernels: int, kernel_us: int) -> list[Manifest]:
    """Return the Deployment and the Service of the example's server."""
    deployment, service = yaml.safe_load_all((EXAMPLES / "serve.yaml").read_text())
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["serve", "--rate", "0", "--kernels", str(kernels), "--kernel-us", str(kernel_us)]
    container["args"] += ["--port", "8080"]
    container["lifecycle"] = {"preStop": {"sleep": {"seconds": FAREWELL_S}}}
    container["readinessProbe"]["periodSeconds"] = 1
    container["resources"]["requests"]["cpu"] = SERVER_CPU
    return [_plain(deployment), service]


def training(kernel_us: int) -> Manifest:
    """Return the Deployment of the example's training with kernels of this duration, and with no replicas."""
    deployment = yaml.safe_load((EXAMPLES / "train.yaml").read_text())
    deployment["spec"]["replicas"] = 0
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["args"] = [
        "train",
        "--kernels",
        str(18_000 // kernel_us),
        "--kernel-us",
        str(kernel_us),
        "--memory",
        "4GiB",
    ]
    deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2
    return _plain(deployment)


def _plain(deployment: Manifest) -> Manifest:
    """Write amounts as text, as the Kubernetes client requires."""
    resources = deployment["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources["limits"] = {name: str(amount) for name, amount in resources["limits"].items()}
    return dict(deployment)


class Bench:
    """The Deployments `serve` and `train` on the cluster's node."""

    def __init__(self, orion: Orion, api: client.ApiClient) -> None:
        (self.node,) = orion.cluster.nodes.values()
        self._orion, self._core, self._apps = orion, client.CoreV1Api(api), client.AppsV1Api(api)
        self.usual = orion.allocatable(self.node)
        """ The slots that the node offers while no rolling update runs. """

    def begin(self, options: argparse.Namespace) -> str:
        """Create everything; return the Service's address once the server answers."""
        self._core.create_namespace({"metadata": {"name": NAMESPACE}})
        self._until(lambda: self._core.list_namespaced_service_account(NAMESPACE).items)
        deployment, service = server(options.kernels, options.kernel_us)
        for each in (deployment, training(options.be_kernel_us)):
            self._apps.create_namespaced_deployment(NAMESPACE, each)
        address = str(self._core.create_namespaced_service(NAMESPACE, service).spec.cluster_ip)
        self._until(self.settled)
        self._until(lambda: not any(failure for *_, failure in Asking(self.node, address, options.rate).rows(2.0)))
        return address

    def fill(self, phase: str) -> None:
        """Start be pods in all be slots, or end all be pods; return when they compute or are gone."""
        count = self.usual["orion.gpu/be"] if phase == "beside" else 0
        self._apps.patch_namespaced_deployment_scale("train", NAMESPACE, {"spec": {"replicas": count}})

        def filled() -> bool:
            pods = self.pods("train")
            return len(pods) == count and all('"report"' in self._log(pod) for pod in pods)

        self._until(filled)

    def restart(self, now: str) -> None:
        """Begin a rolling update of the server."""
        change = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": now}}}}}
        self._apps.patch_namespaced_deployment("serve", NAMESPACE, change)

    def settled(self) -> bool:
        """Return whether no rolling update runs, its old pod is gone, and the node offers its usual slots."""
        found = self._apps.read_namespaced_deployment("serve", NAMESPACE)
        status = found.status
        return (
            status.observed_generation == found.metadata.generation
            and (status.updated_replicas, status.replicas, status.available_replicas) == (1, 1, 1)
            and len(self.pods("serve")) == 1
            and ROLLOUT not in self._core.read_node(self.node.name).metadata.labels
            and self._orion.allocatable(self.node) == self.usual
        )

    def pods(self, app: str) -> list[str]:
        """Return the names of a Deployment's pods."""
        found = self._core.list_namespaced_pod(NAMESPACE, label_selector=f"app={app}").items
        return [pod.metadata.name for pod in found]

    def restarts(self) -> int:
        """Return how often containers had to start again."""
        pods = self._core.list_namespaced_pod(NAMESPACE).items
        return sum(status.restart_count for pod in pods for status in pod.status.container_statuses or ())

    def _log(self, pod: str) -> str:
        try:
            return str(self._core.read_namespaced_pod_log(pod, NAMESPACE))
        except client.ApiException:  # its container has not started yet
            return ""

    def wait_until_settled(self) -> None:
        """Return when the rolling update has finished."""
        self._until(self.settled)

    def _until(self, condition: Callable[[], object]) -> None:
        wait_until(lambda: bool(condition()), "the pods did not reach the expected state", patience=PATIENCE_S)


class Asking:
    """The client on the node."""

    def __init__(self, node: Node, address: str, rate: float) -> None:
        command = [sys.executable, "-m", "measurements.cluster.rollout_client", address, "80", str(rate)]
        pipe = subprocess.PIPE
        self._child = node.spawn(command, stdin=pipe, stdout=pipe, text=True)

    def rows(self, after: float = 0.0) -> list[tuple[float, float, float, str]]:
        """End the client after some seconds; return a row for each request: due, sent, latency, failure."""
        time.sleep(after)
        said, _ = self._child.communicate("", timeout=60)
        return [(due, sent, latency, failure) for due, sent, latency, failure in json.loads(said)]


def turn(bench: Bench, address: str, options: argparse.Namespace, phase: str) -> dict[str, Any]:
    """Run rolling updates one after the other; return the requests of the turn."""
    bench.fill(phase)
    load, restarts = os.getloadavg()[0], bench.restarts()
    asking = Asking(bench.node, address, options.rate)
    time.sleep(LEAD_S + CALM_S)
    began, seconds = time.monotonic(), []
    for _ in range(options.updates):
        before, begun = bench.pods("serve"), time.monotonic()
        bench.restart(f"{begun:.3f}")
        bench.wait_until_settled()
        seconds.append(round(time.monotonic() - begun, 3))
        assert bench.pods("serve") != before, "the rolling update replaced no pod"
    asked = asking.rows()
    rows = [(due - began, sent - due, latency) for due, sent, latency, _ in asked]
    during = [row for row in rows if 0 <= row[0] <= sum(seconds)]
    found: dict[str, Any] = {
        "seconds": seconds,
        "load_before": load,
        "container_restarts": bench.restarts() - restarts,
        "failures": [(round(due - began, 3), failure) for due, _, _, failure in asked if failure],
        "calm_latencies": raw_data.rounded([row[2] for row in rows if -CALM_S <= row[0] < 0]),
        "due": raw_data.rounded([row[0] for row in during]),
        "sent_late": raw_data.rounded([row[1] for row in during]),
        "latencies": raw_data.rounded([row[2] for row in during]),
    }
    p50, p99 = (1e3 * quantile(found["latencies"], part) for part in PARTS)
    say(f"  {phase}: {sum(seconds):.1f} s, {len(during)} requests, {len(found['failures'])} failed, "
        f"p50 {p50:.1f} ms, p99 {p99:.1f} ms")  # fmt: skip
    for when, failure in found["failures"]:
        say(f"    after {when:.1f} s: {failure}")
    return found


def table(raw: dict[str, Any]) -> str:
    """Return a Markdown table: medians over the rounds with the smallest and the largest value; ratios by round."""
    rows = ["| | seconds of an update | requests | failed | p50 (ms) | p99 (ms) | calm p50 (ms) | calm p99 (ms) |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    for phase in PHASES:
        turns = [each[phase] for each in raw["rounds"]]
        requests = sum(len(each["latencies"]) for each in turns)
        failed = sum(when >= 0 for each in turns for when, _ in each["failures"])
        cells = [_spread([seconds for each in turns for seconds in each["seconds"]]), str(requests), str(failed)]
        cells += [_spread(_quantiles(turns, key, part)) for key in ("latencies", "calm_latencies") for part in PARTS]
        rows.append(f"| {' | '.join([phase, *cells])} |")
    for key, when in (("latencies", "during updates"), ("calm_latencies", "before them")):
        for part in PARTS:
            alone, beside = (_quantiles([each[phase] for each in raw["rounds"]], key, part) for phase in PHASES)
            ratios = [mine / other for mine, other in zip(beside, alone, strict=True)]
            rows.append(f"\np{part * 100:.0f} {when}, beside / alone, by pairs: {_spread(ratios, 2)}")
    return "\n".join(rows)


def _quantiles(turns: list[dict[str, Any]], key: str, part: float) -> list[float]:
    return [1e3 * quantile(each[key], part) for each in turns]


def _spread(values: list[float], digits: int = 1) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def measure(orion: Orion, options: argparse.Namespace, raw: dict[str, Any]) -> None:
    """Run all rounds; put their results into `raw`."""
    settings = client.Configuration()
    config.load_kube_config(str(orion.access.kubeconfig), client_configuration=settings)
    settings.proxy = None
    with client.ApiClient(settings) as api:
        bench = Bench(orion, api)
        raw["slots"], raw["versions"] = bench.usual, _versions(bench, api)
        address = bench.begin(options)
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            order = PHASES if number % 2 == 0 else PHASES[::-1]
            raw["rounds"].append({phase: turn(bench, address, options, phase) for phase in order})


def _versions(bench: Bench, api: client.ApiClient) -> dict[str, str]:
    info = client.CoreV1Api(api).read_node(bench.node.name).status.node_info
    return {
        "kubelet": info.kubelet_version,
        "runtime": info.container_runtime_version,
        "kernel": info.kernel_version,
        "os": info.os_image,
    }


def main() -> int:
    """Measure, print the table, and write the raw data."""
    parser = OneSentenceParser(prog="rollout_latency", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=counted, default=5, help="pairs of turns (default: %(default)s)")
    parser.add_argument("--updates", type=counted, default=3, help="rolling updates in a turn (default: %(default)s)")
    parser.add_argument("--be", type=counted, default=8, help="be slots of the GPU (default: %(default)s)")
    parser.add_argument("--be-kernel-us", type=counted, default=1800, help="us of be's kernels (default: %(default)s)")
    parser.add_argument("--rate", type=positive, default=25.0, help="requests per second (default: %(default)s)")
    parser.add_argument("--kernels", type=counted, default=4, help="kernels of a request (default: %(default)s)")
    parser.add_argument("--kernel-us", type=counted, default=1000, help="us of a kernel (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as rollout_latency.json.gz")
    options = parser.parse_args()
    raw: dict[str, Any] = raw_data.header("measurements.cluster.rollout_latency") | conditions() | {"rounds": []}
    raw["command"] = raw["command"].replace(str(options.out), "FILE")
    with (
        tempfile.TemporaryDirectory(prefix="orion-bench-") as folder,
        Cluster(Path(folder) / "cluster", binaries.find_all(), ["node-1"]) as cluster,
        Orion(cluster, {"slots": {"hp": 1, "be": options.be}}, gpus=1) as orion,
    ):
        orion.start()
        measure(orion, options, raw)
    say("\n" + table(raw))
    raw_data.write(options.out, raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
