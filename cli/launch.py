"""`orion launch`: run the clients of a job file as threads of one process.

The command checks the file, then becomes the process that runs it (exec). The hook is preloaded, because it must be
loaded before CUDA.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from orion.cli import extras
from orion.cli.policy_options import DEFAULT_POLICY, PolicyName


def launch(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A JSON list of clients; the last one is hp.")],
    policy: Annotated[PolicyName, typer.Option(help="The policy that decides when be waits.")] = DEFAULT_POLICY,
    max_slowdown: Annotated[
        float,
        typer.Option(min=1, max=100, help="How much longer hp's work may take than without overlap, as a factor."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="The seed of Poisson arrivals.")] = 0,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Run stand-in workloads on the simulated GPU.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Run the clients of a job file as threads of one process.

    Each client has its own stream. Launches of be clients wait while the hp client has work. The command prints each
    client's throughput and latencies, without its first ten iterations.
    """
    from orion import hook
    from orion.bench.job_file import read_jobs
    from orion.cli import launching

    jobs = read_jobs(file, seed)
    on_a_gpu = not simulated and any(not job.kind.startswith("simulated-") for job in jobs)
    if on_a_gpu:
        extras.require("torch", "--simulated runs stand-ins without it")
    driver = hook.simulated_driver() if simulated else None
    environment = launching.preloading_environment(os.environ, hook.library(), driver)
    command = [sys.executable, "-Pm", "orion.bench.job_run", str(file), "--policy", policy]
    command += ["--max-slowdown", str(max_slowdown), "--seed", str(seed)]
    command += ["--simulated"] * simulated + ["--json"] * as_json
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)
