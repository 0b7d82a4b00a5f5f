"""`orion device-plugin`: run the device plugin in the foreground, as its DaemonSet does."""

from pathlib import Path
from typing import Annotated, Any

import typer

from orion.cli.errors import validated
from orion.cli.grpc_logging import log_errors_only


def device_plugin(
    root: Annotated[Path, typer.Option(help="The node agent's folder.")] = Path("/run/orion"),
    configuration: Annotated[
        Path | None,
        typer.Option(
            help="The file that says how containers get GPUs. The plugin follows changes.", show_default="defaults"
        ),
    ] = None,
    node_name: Annotated[
        str, typer.Option(help="This node's name in that file.", show_default="$NODE_NAME, else the host's")
    ] = "",
    kubelet_folder: Annotated[Path, typer.Option(help="The folder with the kubelet's socket for plugins.")] = Path(
        "/var/lib/kubelet/device-plugins"
    ),
    hook_folder: Annotated[Path, typer.Option(help="The folder for the hook's files, which containers mount.")] = Path(
        "/var/lib/orion/hook"
    ),
    host: Annotated[
        Path, typer.Option(help="Where the node's root directory is mounted; used only by the strategy device-nodes.")
    ] = Path("/"),
    agent_patience: Annotated[
        float, typer.Option(help="How many seconds a container's start waits for an agent that is being replaced.")
    ] = 5.0,
    by_node: Annotated[
        bool,
        typer.Option("--by-node", help="Give slots only while the node's agent says so, and not the DRA driver."),
    ] = False,
    metrics_address: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where to serve /metrics, /healthz and /readyz. Empty: do not serve."),
    ] = "127.0.0.1:9436",
) -> None:
    """Advertise this node's GPU slots to the kubelet, as [bold]orion.gpu/hp[/bold] and [bold]orion.gpu/be[/bold].

    The node agent ([bold]orion agent[/bold]) says which GPUs and slots there are. While the agent is away, the plugin
    advertises the devices that the agent reported last. All folders except --host must have the same path here as on
    the node, because the kubelet mounts them into containers.

    A configuration file:

      version: v1

      deviceListStrategy: envvar     # or cdi-annotations, cdi-cri, device-nodes

      preload: environment           # or file: /etc/ld.so.preload, for programs that clear their environment

      onNoAgent: start               # or hold: containers wait for an agent

      nodes: {gpu-7: {deviceListStrategy: cdi-cri}}

    The device plugin does not use the API server.
    """
    options: dict[str, Any] = {
        "root": root,
        "kubelet_folder": kubelet_folder,
        "hook_folder": hook_folder,
        "host": host,
        "agent_patience": agent_patience,
        "configuration": configuration,
        "by_node": by_node,
        "metrics_address": metrics_address,
    }
    _run(options | ({"node": node_name} if node_name else {}))


def _run(options: dict[str, Any]) -> None:
    log_errors_only()
    from orion.device_plugin.serving import run
    from orion.device_plugin.settings import PluginSettings

    run(validated(PluginSettings, options))
