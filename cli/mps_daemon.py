"""`orion mps-daemon`: run the MPS control daemons of a node's GPUs in the foreground, as its DaemonSet does."""

from pathlib import Path
from typing import Annotated

import typer

REFRESH_LEAST_MS = 5.0
""" A shorter period costs more GPU time than it can save. """


def _checked(refresh_ms: float) -> float:
    if 0 < refresh_ms < REFRESH_LEAST_MS:
        raise typer.BadParameter(
            f"each refresh takes 0.3 ms of GPU time: give at least {REFRESH_LEAST_MS:g}, or 0 for never"
        )
    return refresh_ms


def mps_daemon(
    root: Annotated[Path, typer.Option(help="The node agent's folder.")] = Path("/run/orion"),
    driver_root: Annotated[
        Path,
        typer.Option(help="Where the driver's root directory is mounted; searched if PATH has no MPS programs."),
    ] = Path("/"),
    refresh_ms: Annotated[
        float,
        typer.Option(
            min=0,
            max=60_000,
            callback=_checked,
            metavar="MILLISECONDS",
            help="Period after which another context briefly uses each real GPU. Small kernels of clients then start "
            "faster for a while. Each time takes 0.3 ms of GPU time (two context switches). It needs 0.5 GiB of GPU "
            "memory. 40 was measured. 0: never.",
        ),
    ] = 0.0,
) -> None:
    """Keep an MPS control daemon running for each GPU whose GPUDevice says [bold]mode: mps[/bold].

    The node agent names these GPUs in the folder mps below its own. A simulated GPU gets a simulated control daemon.

    When this process ends, the contexts of all clients of these GPUs end too: do not restart it while clients run.
    """
    from orion.node_agent.mps.supervising import Options, run

    run(root, Options(driver_root=driver_root, refresh_ms=refresh_ms))
