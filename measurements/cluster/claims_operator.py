"""Measures the operator where claims give slots: its memory, and the templates that it makes.

    python -m measurements.cluster.claims_operator --nodes 1000 --pods 4000 --out FILE

API server, etcd, controller manager, scheduler, webhook and operator are real, and started here. The nodes have 8 GPUs
and no kubelets (placement_world.py). This program calls the operator as the nodes' agents do, and writes what kubelets
and agents would write (claims_operator_world.py). The operator's resident memory is read in each part, and the highest:

    empty     the nodes offer their GPUs, and their agents are connected
    burst     pods that ask as usual come all at once: the webhook writes their shapes, the operator makes the
              templates, Kubernetes makes the claims, and kube-scheduler places the pods
    waiting   more pods come, of which none fits: the operator reads all slices and claims, and says why
    ended     the pods that wait end, and all pods of half of the shapes: after the next resync their templates are gone
    restart   the operator is killed and starts again
    rest      nothing happens
"""

import argparse
import asyncio
import asyncio.sslproto
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from measurements.cluster.calling_agents import Agents
from measurements.cluster.claims_operator_world import ClaimsWorld, webhook
from measurements.cluster.operator_scale import Operator
from measurements.cluster.placement_world import GPUS
from measurements.cluster.webhook_load import conditions
from orion.api_server.credentials import find_access
from orion.api_server.requests import ApiServer
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, positive, say
from testbed import binaries
from testbed.control_plane import ControlPlane
from testbed.ports import free_port

UNLIMITED = ("--kube-api-qps=5000", "--kube-api-burst=10000")
RESYNC_S = 30
MEMORY_MAX_MIB = 400
_POLL_S = 0.5
_PATIENCE_S = 3600.0

Figures = dict[str, Any]


class Bench:
    """Runs the parts one after the other.

    Args:
        world: the objects.
        operator: the operator; it runs.
        options: the numbers of pods.
    """

    def __init__(self, world: ClaimsWorld, operator: Operator, options: argparse.Namespace) -> None:
        self._world, self._operator, self._options = world, operator, options

    async def run(self) -> AsyncIterator[tuple[str, Figures]]:
        """Yield the figures of each part."""
        world, options = self._world, self._options
        yield "empty", await self._part(asyncio.sleep(0))
        yield "burst", await self._part(self._burst(), templates=True)
        yield "waiting", await self._part(self._waiting(), templates=True)
        yield "ended", await self._part(self._ended(), templates=True)
        yield "restart", await self._part(self._restart(), templates=True, fresh=False)
        await world.report()
        yield "rest", await self._part(asyncio.sleep(options.rest))

    async def _burst(self) -> Figures:
        began = time.monotonic()
        await self._world.create(self._options.pods)
        created = time.monotonic() - began
        placed = await _until(self._world.all_are_placed)
        await self._world.report()
        await self._operator.settled()
        return {"created_s": created, "placed_s": placed + created, "pods": self._options.pods}

    async def _waiting(self) -> Figures:
        names = await self._world.create_too_large(self._options.waiting)
        return {"said_s": await _until(lambda: self._world.all_say_why(names)), "pods": len(names)}

    async def _ended(self) -> Figures:
        ended = await self._world.end_some()
        return {"pods": ended, "gone_s": await _until(self._world.templates_are_those_in_use)}

    async def _restart(self) -> Figures:
        await self._operator.stop(signal.SIGKILL)
        ready = await self._operator.start()
        return {"ready_s": ready, "settled_s": ready + await self._operator.settled()}

    async def _part(self, work: Awaitable[Figures | None], *, templates: bool = False, fresh: bool = True) -> Figures:
        """Do the work; return its figures and what the operator needed meanwhile.

        Args:
            work: what happens.
            templates: whether the templates are compared with the shapes in use afterwards.
            fresh: whether the operator's process stays the same.
        """
        load, began, before, spent = os.getloadavg()[0], time.monotonic(), {}, 0.0
        if fresh:
            self._forget_peak()
            before, spent = await self._operator.writes(), self._operator.cpu()
        found = await work or {}
        found |= {"took_s": time.monotonic() - began, "load": [load, os.getloadavg()[0]]}
        after = await self._operator.writes()
        found |= {"writes": {key: value - before.get(key, 0) for key, value in after.items()}}
        found |= {"cpu_s": self._operator.cpu() - spent, "memory_mib": self._operator.memory()}
        if templates:
            shapes, made = await self._world.shapes_and_templates()
            found |= {"shapes_in_use": len(shapes), "templates": len(made)}
        return found

    def _forget_peak(self) -> None:
        assert self._operator.process
        Path(f"/proc/{self._operator.process.pid}/clear_refs").write_text("5")


async def _until(done: Any) -> float:
    """Return the seconds until a condition holds."""
    began = time.monotonic()
    while not await done():
        if time.monotonic() - began > _PATIENCE_S:
            raise SystemExit(f"{done} did not become true within {_PATIENCE_S:.0f} s")
        await asyncio.sleep(_POLL_S)
    return time.monotonic() - began


async def measure(options: argparse.Namespace, plane: ControlPlane, folder: Path, raw: Figures) -> None:
    """Run everything; put the figures into `raw`."""
    # Clients without limits: they must not be what limits the operator.
    for component in ("kube-controller-manager", "kube-scheduler"):
        plane.restart(component, options=UNLIMITED)
    asyncio.sslproto.SSLProtocol.max_size = 16 * 1024  # else each of this process's connections takes 256 KiB
    api = ApiServer(find_access(plane.access.kubeconfig), "orion-bench", concurrency=32, attempt_s=300)
    world = ClaimsWorld(api, options.nodes)
    port = free_port()
    serve = ["--allocation", "dra", "--resync-seconds", str(RESYNC_S), "--node-pods-agents", world.agents]
    serve += ["--node-pods-address", f"127.0.0.1:{port}", "--node-pods-name", "localhost"]
    log = options.out.with_suffix(".log") if options.out is not None else folder / "operator.log"
    operator = Operator(plane.access.kubeconfig, log, serve)
    try:
        await world.establish_types()
        with webhook(plane.access.kubeconfig, folder) as reach:
            await world.make(reach)
            agents = Agents(api, port, await world.tokens(), least=0)
            say(f"{options.nodes} nodes offer {options.nodes * GPUS} GPUs")
            async with agents.connected(options.nodes):
                await operator.start()
                await operator.settled()
                await _until(lambda: _all_notified(agents, options.nodes))
                async for part, figures in Bench(world, operator, options).run():
                    raw["parts"][part] = figures
                    raw_data.write(options.out, raw)
                    say(f"{part}: {figures}")
    finally:
        if operator.process is not None and operator.process.returncode is None:
            await operator.stop(signal.SIGTERM)
        await api.close()


async def _all_notified(agents: Agents, nodes: int) -> bool:
    return len(agents.notified) == nodes


HEAD = "| | took | memory, and the highest | CPU | write requests | shapes in use | templates |"


def table(raw: Figures) -> str:
    """Return a Markdown table with a row for each part."""
    rows = [HEAD, "|" + "---|" * (HEAD.count("|") - 1)]
    for part, found in raw["parts"].items():
        memory = found["memory_mib"]
        cells = [f"{found['took_s']:.0f} s", f"{memory['now']}, {memory['highest']} MiB", f"{found['cpu_s']:.0f} s"]
        cells += [str(found["writes"]["requests"])]
        cells += [str(found.get(key, "")) for key in ("shapes_in_use", "templates")]
        rows.append(f"| {part} | {' | '.join(cells)} |")
    highest = max(found["memory_mib"]["highest"] for found in raw["parts"].values())
    return "\n".join([*rows, "", f"highest: {highest} MiB (target: {MEMORY_MAX_MIB})"])


def main() -> int:
    """Measure, print the table, and write the raw data."""
    parser = OneSentenceParser(prog="claims_operator", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=counted, default=1_000, help="nodes with 8 GPUs (default: %(default)s)")
    parser.add_argument("--pods", type=counted, default=4_000, help="pods of the burst (default: %(default)s)")
    parser.add_argument("--waiting", type=counted, default=64, help="pods that fit nowhere (default: %(default)s)")
    parser.add_argument("--rest", type=positive, default=60.0, help="seconds of rest (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="file for the raw data, such as claims_operator.json.gz")
    options = parser.parse_args()
    raw: Figures = raw_data.header("measurements.cluster.claims_operator") | conditions() | {"parts": {}}
    raw["kubernetes"] = next(each.version for each in binaries.BINARIES if each.name == "kube-scheduler")
    raw |= {"nodes": options.nodes, "pods": options.pods}
    with (
        tempfile.TemporaryDirectory(prefix="orion-bench-") as folder,
        ControlPlane(Path(folder) / "plane", binaries.find_all()) as plane,
    ):
        asyncio.run(measure(options, plane, Path(folder), raw))
    say(f"\n{table(raw)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
