"""Measures the webhook's latency beside abusers: `python -m measurements.cluster.webhook_abuse --out FILE`.

The load is that of `webhook_load`: an open loop of reviews, as an API server sends them. It runs alone and beside ten
abusers, in turns. Three of ten abusers send reviews of the largest size (long texts; as many fields as possible; lists
that take a second to parse), three keep 64 slow bodies each, and four open TLS connections in a loop. Each has its own
address. With --known, the webhook knows the network of the API server, which is the load's address.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measurements.cluster.webhook_load import Served, add_load_options, conditions, load, served, summary
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from testbed.process_costs import cpu_seconds, memory_kib

KINDS = ("text", "slow", "connections", "fields", "slow", "connections", "lists", "slow", "connections", "connections")
LIMITS_MS = {"alone": 10.0, "abused": 50.0}
""" Limits for p99. """


@contextlib.contextmanager
def abusers(count: int, port: int, niceness: int) -> Iterator[None]:
    """Run abusers, each with its own address."""
    running = []
    try:
        for number in range(count):
            place = (KINDS[number % len(KINDS)], f"127.0.1.{number + 1}", str(port), str(niceness))
            command = [sys.executable, "-m", "measurements.cluster.webhook_abusers", *place]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        for each in running:
            assert each.stdout is not None
            each.stdout.readline()
        yield
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.wait()


def refused(webhook: Served) -> dict[str, int]:
    """Return how many connections and reviews the webhook has refused, by bound."""
    with urllib.request.urlopen(f"http://127.0.0.1:{webhook.health_port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    wanted = (line for line in lines if line.startswith("orion_webhook_refused_total{"))
    return {line.split('"')[1]: round(float(line.rsplit(" ", 1)[1])) for line in wanted}


def cost(webhook: Served) -> dict[str, float]:
    """Return the webhook's CPU time in seconds, and its resident memory now and at its peak in MiB."""
    now, highest = (memory_kib(webhook.process_id, figure) // 1024 for figure in ("VmRSS", "VmHWM"))
    return {"cpu_s": cpu_seconds(webhook.process_id), "now_mib": now, "highest_mib": highest}


def round_of(options: argparse.Namespace, webhook: Served, name: str) -> dict[str, Any]:
    """Send the load once, alone or beside abusers; return the raw data with its summary."""
    before, spent = refused(webhook), cost(webhook)["cpu_s"]
    with abusers(options.abusers if name == "abused" else 0, webhook.port, options.niceness):
        seen = load(options, webhook)
    after, used = refused(webhook), cost(webhook)
    seen["summary"] = summary(seen)
    seen["refused"] = {what: after[what] - before.get(what, 0) for what in after}
    seen["cost"] = used | {"cpu_s": used["cpu_s"] - spent}
    say(f"{name:<7}{json.dumps({**seen['summary'], **seen['cost']})} refused {json.dumps(seen['refused'])}")
    return {"name": name} | seen


def main() -> int:
    """Measure, print the figures, and write the raw data."""
    parser = OneSentenceParser(prog="webhook_abuse", description=__doc__.splitlines()[0] if __doc__ else "")
    add_load_options(parser)
    parser.add_argument("--abusers", type=counted, default=10, help="number of abusers (default 10)")
    parser.add_argument("--niceness", type=int, default=19, help="niceness of the abusers (default 19)")
    parser.add_argument("--rounds", type=counted, default=3, help="rounds, each alone and abused (default 3)")
    parser.add_argument("--known", action="store_true", help="tell the webhook the network of the load")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as webhook_abuse.json.gz")
    options = parser.parse_args()
    options.webhook_options = ("--api-server", "127.0.0.1/32") if options.known else ()
    raw = raw_data.header("measurements.cluster.webhook_abuse") | conditions() | {"known": options.known}
    raw |= {"niceness": options.niceness, "rounds": []}
    with served(options) as webhook:
        for _ in range(options.rounds):
            raw["rounds"] += [round_of(options, webhook, name) for name in LIMITS_MS]
    missed = False
    for name, limit in LIMITS_MS.items():
        found = [each["summary"]["p99_ms"] for each in raw["rounds"] if each["name"] == name]
        missed |= statistics.median(found) > limit
        say(f"{name:<7}p99 {' '.join(f'{each:.1f}' for each in found)} ms; limit {limit:g} ms")
    raw_data.write(options.out, raw)
    wrong = [problem for each in raw["rounds"] for problem in each["problems"]]
    if wrong:
        say(f"wrong answers: {wrong[0]}")
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
