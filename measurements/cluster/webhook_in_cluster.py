"""Measures how long admission takes, by the API server's metrics: `python -m measurements.cluster.webhook_in_cluster`.

It runs against a control plane (`make cluster`, then `kubectl apply --server-side -f charts/orion/files/crds`) with the
real webhook, a separate namespace with a thousand GPUShares, and tasks that create pods as fast as the API server
accepts them. The figures come from the API server's histogram, whose bounds in this range are 5, 25 and 100 ms;
`webhook_load` measures more finely, in the client. At the end the script removes everything that it made.
"""

import argparse
import asyncio
import base64
import os
import re
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from measurements.cluster.webhook_load import conditions, process, wait_until_ready
from measurements.cluster.webhook_world import certificates, example_pod, share
from orion.api_server.access import Access
from orion.api_server.credentials import find_access
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from orion.crds.model import API_VERSION
from orion.operator.webhook import manifests, reviews
from testbed.ports import free_port

HISTOGRAM = "apiserver_admission_webhook_admission_duration_seconds"
ADMISSION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
AT_ONCE = 20
""" Shares that are created concurrently. """


class Cluster:
    """Sends requests to the API server as an administrator."""

    def __init__(self, access: Access) -> None:
        self._url, self._session = access.url, access.session("orion-bench")

    async def ask(self, method: str, path: str, plain: Any = None) -> str:
        """Return the answer's text.

        Raises:
            SystemExit: the server returned an error.
        """
        async with self._session.request(method, self._url + path, json=plain) as response:
            text = await response.text()
            if response.status >= 400:
                raise SystemExit(f"{method} {path}: {response.status} {text[:300]}")
            return text

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def histogram(self) -> dict[str, float]:
        """Return the API server's counts for Orion's webhook: by upper bound in seconds, and `_sum` and `_count`."""
        found: dict[str, float] = {}
        for line in (await self.ask("GET", "/metrics")).splitlines():
            if line.startswith(HISTOGRAM) and "webhook.orion.gpu" in line and 'rejected="false"' in line:
                name = line.partition("{")[0].removeprefix(HISTOGRAM)
                bound = re.search(r'le="([^"]+)"', line)
                found[bound[1] if bound else name] = float(line.rsplit(" ", 1)[1])
        return found


async def create(cluster: Cluster, namespace: str, shares: int, seconds: float, creators: int) -> dict[str, Any]:
    """Create pods as fast as possible; return their number, the time, and the API server's counts in that time."""
    made = 0
    begin = time.perf_counter()

    async def creator(number: int) -> None:
        nonlocal made
        while time.perf_counter() - begin < seconds:
            pod = example_pod((made + number) % shares, good=True)
            pod["spec"]["containers"][0]["securityContext"] = {}
            for container in pod["spec"]["containers"]:
                container.pop("volumeMounts")  # of the service account: the API server adds them
            pod["spec"].pop("volumes")
            pod["metadata"].pop("managedFields")
            await cluster.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
            made += 1

    before = await cluster.histogram()
    await asyncio.gather(*(creator(number) for number in range(creators)))
    spent = time.perf_counter() - begin
    after = await cluster.histogram()
    return {"pods": made, "seconds": spent, "histogram": {key: after[key] - before.get(key, 0) for key in after}}


async def prepare(cluster: Cluster, namespace: str, port: int, authority: Path, shares: int) -> None:
    """Make the namespace, its shares, and a webhook configuration for this namespace only."""
    await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": {"orion-bench": "1"}}})
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        plain = share(number, 1)
        metadata = {"name": plain["metadata"]["name"]}
        async with at_once:
            path = f"/apis/{API_VERSION}/namespaces/{namespace}/gpushares"
            await cluster.ask("POST", path, {**plain, "metadata": metadata})

    await asyncio.gather(*(one(number) for number in range(shares)))
    reach = {
        "url": f"https://127.0.0.1:{port}{reviews.PATH}",
        "caBundle": base64.b64encode(authority.read_bytes()).decode(),
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    await cluster.ask("POST", ADMISSION, manifests.webhook(reach, namespace, selector))
    while "orion.gpu/share" not in await cluster.ask(
        "POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", _probe()
    ):  # fmt: skip
        await asyncio.sleep(0.1)


def _probe() -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    metadata = {"name": "probe", "annotations": {"orion/priority": "be"}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


async def run(options: argparse.Namespace, port: int, authority: Path) -> dict[str, Any]:
    """Prepare, run the load, and clean up."""
    cluster, namespace = Cluster(find_access(options.kubeconfig)), f"orion-bench-{uuid.uuid4().hex[:8]}"
    try:
        await cluster.ask("GET", "/api/v1/namespaces/default/serviceaccounts/default")
        await prepare(cluster, namespace, port, authority, options.shares)
        return await create(cluster, namespace, options.shares, options.seconds, options.creators)
    finally:
        try:
            await cluster.ask("DELETE", f"{ADMISSION}/{namespace}")
            await cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
            await cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}")
        finally:
            await cluster.close()


def main() -> int:
    """Measure, print the figures, and write the raw data."""
    parser = OneSentenceParser(prog="webhook_in_cluster", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="kubeconfig of a test cluster's administrator")
    parser.add_argument("--seconds", type=positive, default=20.0, help="duration (default 20)")
    parser.add_argument("--shares", type=counted, default=1_000, help="GPUShares in the namespace (default 1000)")
    parser.add_argument("--creators", type=counted, default=8, help="concurrent tasks that create pods (default 8)")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as webhook_in_cluster.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orion-bench-") as text:
        authority = certificates(Path(text))
        health_port = free_port()
        command = ["orion.cli", "webhook", "--certificates", text, "--listen", "127.0.0.1:0"]
        command += ["--health", f"127.0.0.1:{health_port}"]
        with process(*command, "--kubeconfig", str(options.kubeconfig), until="reviews on port") as (ready_line, _):
            wait_until_ready(health_port)
            raw = raw_data.header("measurements.cluster.webhook_in_cluster") | conditions()
            raw["load_before"] = os.getloadavg()[0]
            raw["command"] = raw["command"].replace(str(options.kubeconfig), "KUBECONFIG")
            seen = asyncio.run(run(options, int(ready_line.split()[-1]), authority))
    counts = seen["histogram"]
    total = counts["+Inf"]
    say(f"{seen['pods']} pods in {seen['seconds']:.1f} s: {seen['pods'] / seen['seconds']:.0f} pods/s")
    say(f"mean {1e3 * counts['_sum'] / total:.2f} ms over {total:.0f} reviews")
    for bound in sorted((key for key in counts if key[0].isdigit()), key=float):
        say(f"within {1e3 * float(bound):>6g} ms  {100 * counts[bound] / total:6.2f} %")
    raw_data.write(options.out, raw | seen | {"load_after": os.getloadavg()[0]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
