"""Measures how fast pods get GPUs, and how evenly, for each way of placing them.

    python -m measurements.cluster.claims_placement --nodes 10 100 1000 --tenants 0 4000 --out FILE

API server, etcd, controller manager and scheduler are real, and started here. The nodes have 8 GPUs with 8 be slots and
an hp slot, and no kubelets (placement_world.py). The ways:

    first-fit                 claims as without places, GPUs without places
    first-fit-beside-places   the same claims, and GPUs that have places
    1-place, 3-places, 7-places   claims that ask for so many places, then for none
    7-capacities              each place is a capacity of its own
    order-of-slice            first fit, and each node's slice lists the GPU with the fewest tenants first: this program
                              writes it after each allocation, in place of the driver
    device-plugin             the scheduler counts slots of a node

A run of a way makes its slices and its tenants again, and starts the scheduler again, with or without the default limit
of its client. Then pods come one by one, each as soon as the one before it has a node. Then more pods come all at once,
beside the first ones. A pod is scheduled when a watch shows its node. In the next round the ways run in the opposite
order.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from measurements.cluster.placement_world import PODS, WAYS, PlacementWorld, Way
from measurements.cluster.webhook_load import conditions
from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from orion.bench.paired_turns import over
from testbed import binaries
from testbed.control_plane import ControlPlane
from testbed.process_costs import cpu_seconds

UNLIMITED = ("--kube-api-qps=5000", "--kube-api-burst=10000")
LIMITS = {"unlimited": UNLIMITED, "default": ()}
""" Options of the scheduler. Its default is 50 requests in a second. """
PATIENCE_S = 1800.0
SILENCE_S = 600.0

Run = dict[str, Any]


class Bound:
    """When each pod was seen with a node."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._changed = asyncio.Condition()

    async def follow(self, server: ApiServer) -> None:
        """Watch the pods until this is cancelled."""
        while True:  # the API server ends a watch that lags behind; the next one begins with all pods
            async for event in server.events(PODS, SILENCE_S):
                if event["type"] in ("ADDED", "MODIFIED") and event["object"]["spec"].get("nodeName"):
                    async with self._changed:
                        self._times.setdefault(event["object"]["metadata"]["name"], time.monotonic())
                        self._changed.notify_all()

    async def times(self, names: Sequence[str]) -> list[float]:
        """Wait until all pods have nodes; return when each was seen so, in order of time."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._changed:
                await self._changed.wait_for(lambda: self._times.keys() >= set(names))
        except TimeoutError:
            missing = len(set(names) - self._times.keys())
            raise SystemExit(f"{missing} of {len(names)} pods got no node within {PATIENCE_S:.0f} s") from None
        return sorted(self._times[name] for name in names)


class Bench:
    """Runs ways in one cluster.

    Args:
        plane: the control plane.
        server: its API server.
        options: the numbers of pods.
    """

    def __init__(self, plane: ControlPlane, server: ApiServer, options: argparse.Namespace) -> None:
        self._plane, self._server, self._options = plane, server, options
        self.world = PlacementWorld(server)

    async def run(self, way: Way, tenants: int, limit: str) -> Run:
        """Measure one way with one limit."""
        await self.world.prepare(way, tenants)
        self._plane.restart("kube-scheduler", options=LIMITS[limit])
        found: Run = {"way": way.name, "limit": limit, "load_before": os.getloadavg()[0]}
        async with self._following() as bound, self._following_tenants(way):
            await bound.times([await self.world.pod(None)])  # the scheduler works
            with self._measured(found, "one_by_one"):
                found["one_by_one"]["took_s"] = raw_data.rounded(await self._one_by_one(way, bound))
            found["one_by_one"]["differences"] = await self.world.differences(way)
            with self._measured(found, "burst"):
                found["burst"]["bound_s"] = raw_data.rounded(await self._burst(way, bound))
            found["burst"]["differences"] = await self.world.differences(way)
        return found

    async def _one_by_one(self, way: Way, bound: Bound) -> list[float]:
        taken = []
        for _ in range(self._options.singles):
            began = time.monotonic()
            (at,) = await bound.times([await self.world.pod(way)])
            taken.append(at - began)
        return taken

    async def _burst(self, way: Way, bound: Bound) -> list[float]:
        began = time.monotonic()
        names = await asyncio.gather(*(self.world.pod(way) for _ in range(self._options.pods)))
        return [at - began for at in await bound.times(names)]

    @contextlib.contextmanager
    def _measured(self, found: Run, part: str) -> Iterator[None]:
        """Put the scheduler's CPU time, and the number of written slices, into a part of the run."""
        found[part] = {}
        pid, writes = self._plane.pids()["kube-scheduler"], self.world.slice_writes
        before = cpu_seconds(pid)
        yield
        found[part] |= {"scheduler_cpu_s": cpu_seconds(pid) - before, "slice_writes": self.world.slice_writes - writes}

    @contextlib.asynccontextmanager
    async def _following(self) -> AsyncIterator[Bound]:
        bound = Bound()
        async with _beside(bound.follow(self._server)):
            yield bound

    @contextlib.asynccontextmanager
    async def _following_tenants(self, way: Way) -> AsyncIterator[None]:
        async with _beside(self.world.follow_tenants(way)) if way.follows else contextlib.nullcontext():
            yield


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do something else until the block ends; if it fails, the block fails."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()


async def measure(options: argparse.Namespace, plane: ControlPlane, raw: Run) -> None:
    """Run everything; put the results into `raw`."""
    # The claim controller makes the claims, and must not be what limits the scheduler.
    plane.restart("kube-controller-manager", options=UNLIMITED)
    server = ApiServer(find_access(plane.access.kubeconfig), "orion-bench", concurrency=32, attempt_s=300)
    try:
        bench = Bench(plane, server, options)
        await bench.world.begin()
        for nodes in sorted(options.nodes):
            await bench.world.grow(nodes)
            for tenants in options.tenants:
                raw["cases"].append({"nodes": nodes, "tenants": tenants, "rounds": []})
                for number in range(options.rounds):
                    turn: list[Run] = []
                    raw["cases"][-1]["rounds"].append(turn)
                    for name in options.ways if number % 2 == 0 else options.ways[::-1]:
                        for limit in options.limits:
                            turn.append(await bench.run(WAYS[name], tenants, limit))
                            say(f"{nodes} nodes, {tenants} tenants, round {number + 1}: {_sentence(turn[-1])}")
                            raw_data.write(options.out, raw)
    finally:
        await server.close()


def _rates(run: Run) -> tuple[float, float]:
    """Return how many pods a run scheduled in a second: in the burst, and one by one."""
    burst, singles = run["burst"]["bound_s"], run["one_by_one"]["took_s"]
    return len(burst) / burst[-1], 1 / statistics.median(singles)


def _sentence(run: Run) -> str:
    burst, single = _rates(run)
    gpus, nodes = run["burst"]["differences"]
    return (
        f"{run['way']}, {run['limit']}: {burst:.1f} pods/s in a burst, {single:.1f} one by one; GPUs differ by "
        f"{'?' if gpus is None else gpus}, nodes by {nodes}"
    )


HEAD = (
    "| nodes | tenants in place | scheduler's client | way | burst, pods/s | of first fit | one by one, pods/s | "
    "of first fit | scheduler's CPU, ms a pod | GPUs of a node differ by: one by one, then burst | nodes differ by |"
)


def table(raw: Run) -> str:
    """Return a Markdown table: medians of the rounds, ratios within rounds, and the largest differences."""
    rows = [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    for case in raw["cases"]:
        for limit in LIMITS:
            rounds = [{run["way"]: run for run in turn if run["limit"] == limit} for turn in case["rounds"]]
            for way in dict.fromkeys(way for turn in rounds for way in turn):
                rows.append(f"| {case['nodes']} | {case['tenants']} | {limit} | {way} | {_row(rounds, way)} |")
    return "\n".join(rows)


def _row(rounds: Sequence[dict[str, Run]], way: str) -> str:
    runs = [turn[way] for turn in rounds if way in turn]
    cells = []
    for part in (0, 1):
        turns = [{name: [_rates(run)[part]] for name, run in turn.items()} for turn in rounds]
        cells.append(f"{statistics.median(_rates(run)[part] for run in runs):.1f}")
        known = [turn for turn in turns if "first-fit" in turn and way in turn]
        cells.append(f"{over(known, way, 'first-fit', lambda mine, first: mine / first).median:.2f}" if known else "")
    cells.append(f"{statistics.median(_cpu_a_pod(run) for run in runs):.0f}")
    for which in (0, 1):
        found = [
            [run[part]["differences"][which] for run in runs if run[part]["differences"][which] is not None]
            for part in ("one_by_one", "burst")
        ]
        cells.append(", ".join(str(max(each)) for each in found if each) or "not known")
    return " | ".join(cells)


def _cpu_a_pod(run: Run) -> float:
    return float(1e3 * run["burst"]["scheduler_cpu_s"] / len(run["burst"]["bound_s"]))


def main() -> int:
    """Measure, print the table, and write the raw data."""
    parser = OneSentenceParser(prog="claims_placement", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=counted, nargs="+", default=[10], help="sizes of the cluster (default: 10)")
    parser.add_argument("--tenants", type=int, nargs="+", default=[0], help="tenants in place (default: 0)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="the ways (default: all)")
    parser.add_argument("--limits", nargs="+", choices=LIMITS, default=list(LIMITS), help="limits of the client")
    parser.add_argument("--pods", type=counted, default=200, help="pods of a burst (default: %(default)s)")
    parser.add_argument("--singles", type=counted, default=20, help="pods one by one (default: %(default)s)")
    parser.add_argument("--rounds", type=counted, default=3, help="runs of each way (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as claims_placement.json")
    options = parser.parse_args()
    raw: Run = raw_data.header("measurements.cluster.claims_placement") | conditions() | {"cases": []}
    raw["kubernetes"] = next(each.version for each in binaries.BINARIES if each.name == "kube-scheduler")
    with (
        tempfile.TemporaryDirectory(prefix="orion-bench-") as folder,
        ControlPlane(Path(folder) / "plane", binaries.find_all()) as plane,
    ):
        asyncio.run(measure(options, plane, raw))
    say(f"\n{table(raw)}")
    raw_data.write(options.out, raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
