"""`orion launch`: run one of Orion's job files, its clients as threads of one process.

The command checks the file, then becomes the process that runs it (exec), with the hook preloaded: it has to be there
before CUDA is.
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from orion.cli.errors import Refused


def launch(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A JSON list of clients; the last one is hp.")],
    policy: Annotated[
        Literal["orion", "gate", "none", "streams", "reef", "ticktock", "orion-2024"],
        typer.Option(help="What a be client's launch waits for."),
    ] = "orion",
    max_slowdown: Annotated[
        float, typer.Option(min=1, max=100, help="How much longer hp's work may take than without overlap.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of Poisson arrivals.")] = 0,
    simulated: Annotated[bool, typer.Option("--simulated", help="Stand-ins on the simulated GPU.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Run the clients of a job file as threads of one process.

    Each has a stream of its own; launches of be clients wait while the hp client has work. Prints throughput and
    latencies of each client, its first ten iterations left out.
    """
    from orion import hook
    from orion.bench.job_file import JobFileError, read_jobs
    from orion.cli import launching

    try:
        jobs = read_jobs(file, seed)
    except JobFileError as error:
        raise Refused(str(error)) from error
    on_a_gpu = not simulated and any(not job.kind.startswith("simulated-") for job in jobs)
    if on_a_gpu and importlib.util.find_spec("torch") is None:
        raise Refused("torch is not installed, and the clients work with it; --simulated runs stand-ins without it")
    driver = hook.simulated_driver() if simulated else None
    environment = launching.preloading_environment(os.environ, hook.library(), driver)
    command = [sys.executable, "-m", "orion.bench.job_run", str(file), "--policy", policy]
    command += ["--max-slowdown", str(max_slowdown), "--seed", str(seed)]
    command += ["--simulated"] * simulated + ["--json"] * as_json
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)
