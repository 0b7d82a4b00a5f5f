"""`orion dra-driver`: run the DRA driver in the foreground, as its DaemonSet does."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orion.cli.errors import validated
from orion.cli.grpc_logging import log_errors_only


def dra_driver(
    root: Annotated[Path, typer.Option(help="The node agent's folder.")] = Path("/run/orion"),
    configuration: Annotated[
        Path | None,
        typer.Option(
            help="The file that says how containers get GPUs. The driver follows changes.", show_default="defaults"
        ),
    ] = None,
    node_name: Annotated[
        str, typer.Option(help="This node's name in its cluster.", show_default="$NODE_NAME, else the host's")
    ] = "",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The kubeconfig for the API server.", show_default="the pod's account, else $KUBECONFIG"),
    ] = None,
    kubelet_folder: Annotated[Path, typer.Option(help="The kubelet's root directory.")] = Path("/var/lib/kubelet"),
    cdi_folder: Annotated[
        Path, typer.Option(help="A folder in which the container runtime looks for CDI files.")
    ] = Path("/var/run/cdi"),
    hook_folder: Annotated[Path, typer.Option(help="The folder for the hook's files, which containers mount.")] = Path(
        "/var/lib/orion/dra-hook"
    ),
    host: Annotated[
        Path, typer.Option(help="Where the node's root directory is mounted; used only by the strategy device-nodes.")
    ] = Path("/"),
    agent_patience: Annotated[
        float, typer.Option(help="How many seconds a pod that may start without an agent waits for one.")
    ] = 5.0,
    slot_memory_mib: Annotated[
        int,
        typer.Option(
            help="MiB of a GPU that each slot takes besides what claims can ask for: its processes' contexts."
        ),
    ] = 512,
    by_node: Annotated[
        bool,
        typer.Option("--by-node", help="Give slots only while the node's agent says so, and not the device plugin."),
    ] = False,
    metrics_address: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where to serve /metrics, /healthz and /readyz. Empty: do not serve."),
    ] = "127.0.0.1:9436",
) -> None:
    """Offer this node's GPUs to ResourceClaims, as devices of the driver [bold]orion.gpu[/bold].

    The scheduler gives parts of a GPU to claims: slots, time and memory. The driver gives the claims' containers a
    slot, the GPU and the hook. The node agent ([bold]orion agent[/bold]) says which GPUs and slots there are. A node
    runs either this driver or the device plugin. Kubernetes 1.36 or later, and containerd 2 or CRI-O, are needed.

    The configuration file is the device plugin's, except that /etc/ld.so.preload always loads the hook. All folders
    except --host must have the same path here as on the node.
    """
    options: dict[str, Any] = {
        "root": root,
        "kubelet_folder": kubelet_folder,
        "cdi_folder": cdi_folder,
        "hook_folder": hook_folder,
        "host": host,
        "agent_patience": agent_patience,
        "slot_memory_mib": slot_memory_mib,
        "configuration": configuration,
        "kubeconfig": kubeconfig,
        "by_node": by_node,
        "metrics_address": metrics_address,
    }
    _run(options | ({"node": node_name} if node_name else {}))


def _run(options: dict[str, Any]) -> None:
    log_errors_only()
    from orion.dra_driver.serving import run
    from orion.dra_driver.settings import DriverSettings

    run(validated(DriverSettings, options))
