"""Measures how fast the device plugin answers the kubelet: `python -m measurements.cluster.device_plugin_cost`.

It runs the real process (`orion device-plugin`) with 64 slots on 8 GPUs. No agent runs: this script writes the snapshot
that an agent would have sent. It also acts as the kubelet, over the real protocol. It measures these durations:

    allocate      one call of Allocate; the calls follow one after the other, as those of a kubelet do
    prefer        one call of GetPreferredAllocation
    registered    begins when the kubelet's socket appears; ends when both resources are registered and have sent their
                  lists
"""

import argparse
import contextlib
import os
import platform
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format

from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from orion.device_plugin.kubelet import api_pb2, api_pb2_grpc
from orion.node_agent.api import agent_pb2
from testbed.process_costs import cpu_seconds, memory_kib

GPUS, SLOTS = 8, 8
RESOURCES = ("orion.gpu/hp", "orion.gpu/be")
PATIENCE_S = 30.0
ALLOCATE_MS, REGISTERED_S = 5.0, 1.0
""" Limits for p99. """


class Kubelet(api_pb2_grpc.RegistrationServicer):
    """Registers plugins as a kubelet does, and puts each plugin that has sent its list into `listed`."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "kubelet.sock"
        self._folder = folder
        self.listed: queue.SimpleQueue[tuple[str, Any, list[str]]] = queue.SimpleQueue()
        """ Resource, stub, device IDs. """
        self._channels: list[grpc.Channel] = []
        self._threads = futures.ThreadPoolExecutor(8)
        self._server: grpc.Server | None = None

    def start(self) -> float:
        """Delete all sockets and listen; return the time by time.monotonic()."""
        for path in self._folder.glob("*.sock"):
            path.unlink()
        self._server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        began = time.monotonic()
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return began

    def stop(self) -> None:
        """End as a kubelet does: cut all connections."""
        assert self._server is not None
        self._server.stop(None).wait()
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        while not self.listed.empty():
            self.listed.get()

    def both(self) -> tuple[dict[str, Any], dict[str, list[str]], float]:
        """Wait until both resources have sent their lists; return stubs and device IDs by resource, and the time."""
        stubs: dict[str, Any] = {}
        devices: dict[str, list[str]] = {}
        while len(stubs) < len(RESOURCES):
            resource, stubs[resource], devices[resource] = self.listed.get(timeout=PATIENCE_S)
        return stubs, devices, time.monotonic()

    def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Connect to the plugin before answering, as the kubelet does."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"unix:{self._folder / request.endpoint}", options=options)
        self._channels.append(channel)
        stub = api_pb2_grpc.DevicePluginStub(channel)  # type: ignore[no-untyped-call]
        stub.GetDevicePluginOptions(api_pb2.Empty(), timeout=10)
        self._threads.submit(self._listen, request.resource_name, stub)
        return api_pb2.Empty()

    def _listen(self, resource: str, stub: Any) -> None:
        with contextlib.suppress(grpc.RpcError, ValueError):
            for answer in stub.ListAndWatch(api_pb2.Empty()):
                self.listed.put((resource, stub, [device.ID for device in answer.devices]))


def last_snapshot(root: Path) -> None:
    """Write the snapshot that the node's agent would have sent, into the file in which the plugin saves snapshots."""
    names = ["hp-0", *(f"be-{number}" for number in range(SLOTS))]
    message = agent_pb2.Devices(
        devices=[
            agent_pb2.Device(
                uuid=f"GPU-{index:08d}-0000-4000-8000-000000000000", index=index, minor=index, healthy=True,
                memory_bytes=80 << 30, numa_node=index // 4, slots=names,
            )
            for index in range(GPUS)
        ]
    )  # fmt: skip
    root.mkdir()
    (root / "device-plugin.json").write_text(json_format.MessageToJson(message))


@contextlib.contextmanager
def plugin(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the real process."""
    command = [sys.executable, "-m", "orion.cli", "device-plugin", "--root", str(folder / "root")]
    command += ["--kubelet-folder", str(folder / "kubelet"), "--hook-folder", str(folder / "hook")]
    with (folder / "plugin.log").open("wb") as log:
        running = subprocess.Popen([*command, "--metrics-address", ""], stderr=log, stdout=log)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(PATIENCE_S)


def timed(ask: Callable[[Any], Any], requests: list[Any]) -> list[float]:
    """Send requests one after the other; return the duration of each in seconds."""
    taken = []
    for request in requests:
        began = time.perf_counter()
        ask(request)
        taken.append(time.perf_counter() - began)
    return taken


def measure_requests(kubelet: Kubelet, calls: int, chance: random.Random) -> dict[str, list[float]]:
    """Return durations of Allocate and GetPreferredAllocation for the be slots, in seconds."""
    stubs, devices, _ = kubelet.both()
    stub, ids = stubs[RESOURCES[1]], devices[RESOURCES[1]]
    assert len(ids) == GPUS * SLOTS
    allocate = [
        api_pb2.AllocateRequest(container_requests=[{"devices_ids": [chance.choice(ids)]}]) for _ in range(calls)
    ]
    prefer = []
    for _ in range(calls):
        available = chance.sample(ids, chance.randint(2, len(ids)))
        size = chance.choice((1, 1, 1, 2))
        prefer.append(
            api_pb2.PreferredAllocationRequest(
                container_requests=[{"available_deviceIDs": available, "allocation_size": size}]
            )
        )
    timed(stub.Allocate, allocate[:50])  # warm-up
    return {"allocate_s": timed(stub.Allocate, allocate), "prefer_s": timed(stub.GetPreferredAllocation, prefer)}


def measure_registering(kubelet: Kubelet, turns: int, chance: random.Random) -> list[float]:
    """Restart the kubelet at random moments; return the seconds from the new socket until both lists have arrived."""
    taken = []
    for _ in range(turns):
        kubelet.stop()
        kubelet.socket.unlink(missing_ok=True)
        time.sleep(chance.uniform(0.5, 2.0))
        began = kubelet.start()
        taken.append(kubelet.both()[2] - began)
    return taken


def measure(calls: int, turns: int, seed: int) -> dict[str, Any]:
    """Return the raw data."""
    chance = random.Random(seed)
    raw = raw_data.header("measurements.cluster.device_plugin_cost")
    raw |= {"gpus": GPUS, "slots": GPUS * SLOTS, "seed": seed}
    raw |= {"processors": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "kubelet").mkdir()
        last_snapshot(folder / "root")
        kubelet = Kubelet(folder / "kubelet")
        kubelet.start()
        with plugin(folder) as running:
            say(f"{calls} calls of Allocate and of GetPreferredAllocation")
            raw |= measure_requests(kubelet, calls, chance)
            say(f"{turns} restarts of the kubelet")
            raw["registered_s"] = measure_registering(kubelet, turns, chance)
            raw["resident_kib"] = memory_kib(running.pid, "VmRSS")
            raw["cpu_s_a_minute"] = idle(running.pid)
        kubelet.stop()
    return raw | {"load_after": os.getloadavg()[0]}


def idle(process_id: int, seconds: float = 20.0) -> float:
    """Return the CPU seconds that an idle process takes in a minute."""
    before = cpu_seconds(process_id)
    time.sleep(seconds)
    return (cpu_seconds(process_id) - before) * 60 / seconds


def table(raw: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = ["| | p50 | p99 | max | samples | target |", "|---|---|---|---|---|---|"]
    for key, name, unit, scale, limit in (
        ("allocate_s", "Allocate", "ms", 1e3, f"p99 <= {ALLOCATE_MS:g} ms"),
        ("prefer_s", "GetPreferredAllocation", "ms", 1e3, ""),
        ("registered_s", "registered after the kubelet's socket appeared", "s", 1, f"<= {REGISTERED_S:g} s"),
    ):
        values = sorted(raw[key])
        p99 = values[min(len(values) - 1, int(len(values) * 0.99))]
        figures = (statistics.median(values), p99, values[-1])
        shown = " | ".join(f"{value * scale:.2f} {unit}" for value in figures)
        lines.append(f"| {name} | {shown} | {len(values)} | {limit} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, write the raw data, print the table."""
    parser = OneSentenceParser(
        prog="python -m measurements.cluster.device_plugin_cost", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--calls", type=counted, default=2_000)
    parser.add_argument("--turns", type=counted, default=20, help="restarts of the kubelet")
    parser.add_argument("--seed", type=counted, default=1)
    parser.add_argument("--output", type=Path, default=Path("device_plugin_cost.json.gz"))
    arguments: argparse.Namespace = parser.parse_args()
    raw = measure(arguments.calls, arguments.turns, arguments.seed)
    raw["command"] = raw["command"].replace(str(arguments.output), "FILE")
    raw_data.write(arguments.output, raw)
    print(table(raw))
    print(f"\nmemory {raw['resident_kib'] / 1024:.0f} MiB; CPU when idle {raw['cpu_s_a_minute']:.2f} s a minute")
    return 0


if __name__ == "__main__":
    sys.exit(main())
