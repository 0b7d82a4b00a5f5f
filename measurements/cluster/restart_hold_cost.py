"""Measures what the test for an agent costs a container's start: `python -m measurements.cluster.restart_hold_cost`.

The container runtime runs `orion-await-agent` before each start of a container whose pod must be held. The real agent
runs, with simulated GPUs, and is idle. The program needs a checkout and root. It measures two durations:

    program   from the fork until orion-await-agent has ended, with the container's state on its standard input
    runc      `runc run` of a container that ends at once, without the hook and with it, in turns of changing order
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from orion import hook
from orion.bench import raw_data
from orion.bench.commandline import OneSentenceParser, counted, say
from orion.node_agent.api.client import AgentClient, NoAgent
from testbed import packages

TARGET_MS = 5.0
""" For the median. """
WAIT_S = "15"
PATIENCE_S = 60.0
STATE = b'{"ociVersion": "1.0.2", "id": "one", "status": "creating", "pid": 1, "bundle": "/run/one"}'


@contextlib.contextmanager
def agent(folder: Path) -> Iterator[list[Path]]:
    """Run an agent; yield the folders of its slots."""
    configuration = folder / "node.yaml"
    configuration.write_text(json.dumps({"version": "v1", "slots": {"hp": 1, "be": 3}}))
    command = [sys.executable, "-m", "orion.cli", "agent", "--gpus", "simulated", "--root", str(folder / "root")]
    command += ["--configuration", str(configuration), "--metrics-address", ""]
    environment = {**os.environ, "ORION_SIM_STATE": str(folder / "sim"), "ORION_SIM_GPUS": "1"}
    with (folder / "agent.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        yield slots(folder / "root")
    finally:
        running.terminate()
        running.wait(PATIENCE_S)


def slots(root: Path) -> list[Path]:
    """Wait until the agent answers; return the folders of its slots."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(NoAgent), AgentClient(root) as client:
            return [Path(slot.directory) for gpu in client.snapshot().gpus for slot in gpu.slots]
        if time.monotonic() > deadline:
            raise TimeoutError("the agent did not begin to serve")
        time.sleep(0.1)


def timed_program(command: list[str]) -> float:
    """Run a program with the container's state on its standard input; return the seconds until it has ended."""
    reading, writing = os.pipe()
    os.write(writing, STATE)
    os.close(writing)
    began = time.perf_counter()
    process = os.posix_spawn(command[0], command, {}, file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)])
    _, status = os.waitpid(process, 0)
    taken = time.perf_counter() - began
    os.close(reading)
    assert status == 0, f"{command[0]} ended with {status}"
    return taken


def bundle(folder: Path, busybox: Path, command: Sequence[str]) -> Path:
    """Make a container that ends at once, with a createRuntime hook if there is a command."""
    (folder / "rootfs" / "proc").mkdir(parents=True)
    (folder / "rootfs" / "busybox").write_bytes(busybox.read_bytes())
    (folder / "rootfs" / "busybox").chmod(0o755)
    hooks = {"createRuntime": [{"path": command[0], "args": [*command], "timeout": 20}]} if command else {}
    specification = {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/busybox", "true"], "cwd": "/"},
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "hooks": hooks,
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")]},
    }
    (folder / "config.json").write_text(json.dumps(specification))
    return folder


def timed_runc(runtime: packages.Runtime, state: Path, container: Path) -> float:
    """Run a container; return the seconds until it has ended."""
    command = [runtime.program("runc"), "--root", str(state), "run", "--bundle", str(container), container.name]
    began = time.perf_counter()
    subprocess.run(command, env=dict(runtime.environment), stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def measure(starts: int, containers: int) -> dict[str, Any]:
    """Return the raw data."""
    runtime = packages.find()
    raw = raw_data.header("measurements.cluster.restart_hold_cost")
    raw |= {"processors": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="orion-", dir="/tmp") as name:
        folder = Path(name)
        with agent(folder) as directories:
            command = [str(hook.await_agent()), WAIT_S, str(directories[-1])]
            say(f"{starts} starts of the program")
            raw["program_s"] = raw_data.rounded([timed_program(command) for _ in range(starts)])
            say(f"{containers} containers without the hook and {containers} with it, in turns")
            without = bundle(folder / "without", runtime.busybox, [])
            held = bundle(folder / "with", runtime.busybox, command)
            taken: dict[Path, list[float]] = {without: [], held: []}
            for pair in range(containers):
                for container in (without, held) if pair % 2 else (held, without):
                    taken[container].append(timed_runc(runtime, folder / "state", container))
            raw["runc_without_s"], raw["runc_with_s"] = map(raw_data.rounded, taken.values())
    return raw | {"load_after": os.getloadavg()[0]}


def table(raw: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = ["| | median | p99 | samples | target |", "|---|---|---|---|---|"]
    differences = [after - before for before, after in zip(raw["runc_without_s"], raw["runc_with_s"], strict=True)]
    for title, seconds, target in (
        ("the program alone", raw["program_s"], f"<= {TARGET_MS:g} ms"),
        ("`runc run` without the hook", raw["runc_without_s"], ""),
        ("`runc run` with the hook", raw["runc_with_s"], ""),
        ("difference within a pair", differences, f"<= {TARGET_MS:g} ms"),
    ):
        values = sorted(seconds)
        p99 = values[min(len(values) - 1, int(len(values) * 0.99))]
        shown = f"{statistics.median(values) * 1e3:.2f} ms | {p99 * 1e3:.2f} ms"
        lines.append(f"| {title} | {shown} | {len(values)} | {target} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, write the raw data, print the table."""
    parser = OneSentenceParser(
        prog="python -m measurements.cluster.restart_hold_cost", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--starts", type=counted, default=1_000)
    parser.add_argument("--containers", type=counted, default=400)
    parser.add_argument("--output", type=Path, default=Path("restart_hold_cost.json.gz"))
    arguments: argparse.Namespace = parser.parse_args()
    raw = measure(arguments.starts, arguments.containers)
    raw["command"] = raw["command"].replace(str(arguments.output), "FILE")
    raw_data.write(arguments.output, raw)
    print(table(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
