"""Measures the webhook's latency with an open loop of reviews: `python -m measurements.cluster.webhook_load`.

It runs the real process (`orion webhook`) with realistic lists: a separate process stands in for the API server, serves
a thousand GPUShares and a hundred GPUs, and then sends no events. This script sends reviews as the API server would,
over persistent TLS connections. It plans the time of each review beforehand, and sends the review at that time even if
earlier reviews are unanswered. The latency counts from the planned time, so a stall shows in every review that waited.
The latency includes the client's own delay, which is noticeable on two busy cores. The raw data has this delay, too.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import platform
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measurements.cluster.webhook_world import Review, certificates, reviews
from orion.bench import raw_data
from orion.bench.arrivals import poisson_arrivals
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from testbed.ports import free_port

LEAD_S = 2.0
""" Warm-up: connections are opened and caches filled; not counted. """
PATIENCE_S = 30.0
LIMIT_MS = 10.0
""" Limit for p99. """


@dataclass(frozen=True)
class Served:
    """A running webhook."""

    port: int
    health_port: int
    context: ssl.SSLContext
    process_id: int


@contextlib.contextmanager
def process(*command: str, until: str) -> Iterator[tuple[str, int]]:
    """Run a Python module; yield the line of its standard error that has `until` in it, and the process id."""
    with subprocess.Popen([sys.executable, "-m", *command], stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            for line in running.stderr:
                if until in line:
                    yield line, running.pid
                    break
            else:
                raise SystemExit(f"{command[0]} ended before it printed {until!r}")
        finally:
            running.terminate()


async def send(port: int, context: ssl.SSLContext, asked: list[Review], due: list[float], connections: int) -> Any:
    """Send each review when it is due; return rows of (due, late, latency) in seconds, and wrong answers."""
    import aiohttp

    connector = aiohttp.TCPConnector(ssl=context, limit=connections, keepalive_timeout=90)
    rows: list[tuple[float, float, float]] = []
    problems: list[str] = []
    url = f"https://127.0.0.1:{port}/admit"
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one(at: float, review: Review) -> None:
            sent = time.perf_counter()
            async with session.post(url, data=review.body, headers={"Content-Type": "application/json"}) as response:
                text = await response.read()
            ended = time.perf_counter()
            rows.append((at, sent - begin - at, ended - begin - at))
            if response.status != 200 or json.loads(text)["response"]["allowed"] is not review.allowed:
                problems.append(f"{response.status}: {text[:200]!r}")

        begin = time.perf_counter()
        tasks = []
        for number, at in enumerate(due):
            await asyncio.sleep(max(0.0, begin + at - time.perf_counter()))
            tasks.append(asyncio.create_task(one(at, asked[number % len(asked)])))
        await asyncio.gather(*tasks)
    return rows, problems


def wait_until_ready(port: int) -> None:
    """Return once the webhook has its lists.

    Raises:
        SystemExit: the webhook was not ready in time.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), opener.open(f"http://127.0.0.1:{port}/readyz", timeout=1):
            return
        time.sleep(0.05)
    raise SystemExit("the webhook did not become ready")


def conditions() -> dict[str, Any]:
    """Return what affects the figures: the cores, and whether this runs with real-time priority (`chrt -r 1`)."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "real_time": real_time}


def quantile(values: list[float], part: float) -> float:
    """Return the smallest value that is at least as large as this part of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


@contextlib.contextmanager
def served(options: argparse.Namespace) -> Iterator[Served]:
    """Run the webhook, and a process that serves its lists."""
    with tempfile.TemporaryDirectory(prefix="orion-bench-") as text:
        folder = Path(text)
        authority = certificates(folder)
        context = ssl.create_default_context(cafile=str(authority))
        world = (
            "measurements.cluster.webhook_world",
            "--shares",
            str(options.shares),
            "--namespaces",
            str(options.namespaces),
        )
        with process(*world, until="serving on") as (line, _):
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(_kubeconfig(line.split()[-1]))
            hook = ("orion.cli", "webhook", "--certificates", text, "--listen", "127.0.0.1:0")
            health_port = free_port()
            more = ("--health", f"127.0.0.1:{health_port}", "--leave-seconds", "0", "--kubeconfig", str(kubeconfig))
            more += getattr(options, "webhook_options", ())
            with process(*hook, *more, until="reviews on port") as (ready_line, process_id):
                wait_until_ready(health_port)
                yield Served(int(ready_line.split()[-1]), health_port, context, process_id)


def load(options: argparse.Namespace, webhook: Served) -> dict[str, Any]:
    """Send the reviews; return the raw data."""
    asked = reviews(options.shares, options.namespaces)
    due = poisson_arrivals(options.rate, LEAD_S + options.seconds, options.seed)
    if options.regular:
        due = [number / options.rate for number in range(int((LEAD_S + options.seconds) * options.rate))]
    say(f"{options.rate:g} reviews/s for {options.seconds:g} s, {len(asked[0].body)} bytes each")
    before = os.getloadavg()[0]
    gc.collect()
    gc.freeze()  # otherwise collections in the client would count as the webhook's time
    rows, problems = asyncio.run(send(webhook.port, webhook.context, asked, due, options.connections))
    counted_rows = [row for row in rows if row[0] >= LEAD_S]
    return {
        "load_before": before,
        "load_after": os.getloadavg()[0],
        "problems": problems[:10],
        "due_s": raw_data.rounded([row[0] for row in counted_rows]),
        "late_s": raw_data.rounded([row[1] for row in counted_rows]),
        "latency_s": raw_data.rounded([row[2] for row in counted_rows]),
    }


def _kubeconfig(url: str) -> str:
    return json.dumps({
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
    })  # fmt: skip


def summary(seen: dict[str, Any]) -> dict[str, float]:
    """Return the figures of a run, in milliseconds."""
    latency, late = seen["latency_s"], seen["late_s"]
    parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    figures = {f"{name}_ms": 1e3 * quantile(latency, part) for name, part in parts.items()}
    figures |= {"max_ms": 1e3 * max(latency), "mean_ms": 1e3 * statistics.fmean(latency)}
    figures |= {"client_late_p99_ms": 1e3 * quantile(late, 0.99), "reviews": float(len(latency))}
    return {name: round(value, 3) for name, value in figures.items()}


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `served` and `load` need."""
    parser.add_argument("--rate", type=positive, default=200.0, help="reviews per second (default 200)")
    parser.add_argument("--seconds", type=positive, default=30.0, help="duration (default 30)")
    parser.add_argument("--shares", type=counted, default=1_000, help="GPUShares in the cluster (default 1000)")
    parser.add_argument("--namespaces", type=counted, default=20, help="namespaces of the shares (default 20)")
    parser.add_argument("--connections", type=counted, default=16, help="persistent connections (default 16)")
    parser.add_argument("--regular", action="store_true", help="equal intervals instead of a Poisson process")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random arrival times (default 1)")


def main() -> int:
    """Measure, print the figures, and write the raw data."""
    parser = OneSentenceParser(prog="webhook_load", description=__doc__.splitlines()[0] if __doc__ else "")
    add_load_options(parser)
    parser.add_argument("--out", type=Path, help="file for the raw data, such as webhook_load.json.gz")
    options = parser.parse_args()
    with served(options) as webhook:
        raw = raw_data.header("measurements.cluster.webhook_load") | conditions() | load(options, webhook)
    raw["summary"] = summary(raw)
    for name, value in raw["summary"].items():
        say(f"{name:<20}{value:g}")
    say(f"load of the machine: {raw['load_before']:.1f} before, {raw['load_after']:.1f} after")
    raw_data.write(options.out, raw)
    if raw["problems"]:
        say(f"wrong answers: {raw['problems'][0]}")
    return 1 if raw["problems"] or raw["summary"]["p99_ms"] > LIMIT_MS else 0


if __name__ == "__main__":
    sys.exit(main())
