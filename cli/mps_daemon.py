"""`orion mps-daemon`: run the MPS control daemons of a node's GPUs in the foreground, as its DaemonSet does."""

from pathlib import Path
from typing import Annotated

import typer

from orion.cli.errors import Refused

REFRESH_LEAST_MS = 5.0
""" More often takes more of the GPU than it can bring. """


def _checked(refresh_ms: float) -> float:
    if 0 < refresh_ms < REFRESH_LEAST_MS:
        raise typer.BadParameter(
            f"each time takes 0.3 ms of the GPU's time: leave {REFRESH_LEAST_MS:g} ms between, or say 0 for never"
        )
    return refresh_ms


def mps_daemon(
    root: Annotated[Path, typer.Option(help="The node agent's folder.")] = Path("/run/orion"),
    driver_root: Annotated[
        Path,
        typer.Option(help="Where the driver's root directory is seen; searched where PATH has no MPS programs."),
    ] = Path("/"),
    refresh_ms: Annotated[
        float,
        typer.Option(
            min=0,
            max=60_000,
            callback=_checked,
            metavar="MILLISECONDS",
            help="Every so often another context has each real GPU for a moment, after which clients' small kernels "
            "begin faster for a while. It takes 0.3 ms of the GPU's time (two changes of hands), and 0.5 GiB of its "
            "memory. 40 is what was measured. 0: never.",
        ),
    ] = 0.0,
) -> None:
    """Keep an MPS control daemon running for each GPU whose GPUDevice says [bold]mode: mps[/bold].

    The node agent says which GPUs those are, in the folder mps below its own; nothing else is asked. A simulated GPU
    gets a simulated control daemon.

    When this process ends, the contexts of all clients of those GPUs end with it: do not restart it while they run.
    """
    from orion.node_agent.mps.supervising import AlreadyRuns, Options, run

    try:
        run(root, Options(driver_root=driver_root, refresh_ms=refresh_ms))
    except (AlreadyRuns, OSError) as error:
        raise Refused(str(error)) from error
