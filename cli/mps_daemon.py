"""`orion mps-daemon`: run the MPS control daemons of a node's GPUs in the foreground, as its DaemonSet does."""

from pathlib import Path
from typing import Annotated

import typer

from orion.cli.errors import Refused


def mps_daemon(
    root: Annotated[Path, typer.Option(help="The node agent's folder.")] = Path("/run/orion"),
    driver_root: Annotated[
        Path,
        typer.Option(help="Where the driver's root directory is seen; searched where PATH has no MPS programs."),
    ] = Path("/"),
) -> None:
    """Keep an MPS control daemon running for each GPU whose GPUDevice says [bold]mode: mps[/bold].

    The node agent says which GPUs those are, in the folder mps below its own; nothing else is asked. A simulated GPU
    gets a simulated control daemon.

    When this process ends, the contexts of all clients of those GPUs end with it: do not restart it while they run.
    """
    from orion.node_agent.mps.supervising import AlreadyRuns, run

    try:
        run(root, driver_root)
    except (AlreadyRuns, OSError) as error:
        raise Refused(str(error)) from error
