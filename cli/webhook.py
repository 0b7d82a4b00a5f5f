"""`orion webhook`: run the admission server in the foreground, as its Deployment does."""

import logging
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orion.cli.errors import validated
from orion.errors import Invalid

if TYPE_CHECKING:
    from orion.operator.webhook.bounds import Network
    from orion.operator.webhook.defaults import Defaults
    from orion.operator.webhook.serving import Webhook

Allocation = Annotated[
    str,
    typer.Option(
        metavar="KIND", help="How pods get slots: device-plugin; dra, by ResourceClaims; by-node, as nodes choose."
    ),
]


def webhook(
    certificates: Annotated[
        Path,
        typer.Option(
            help="A folder with tls.crt and tls.key, as in a TLS secret. The webhook follows changes at once."
        ),
    ] = Path("/etc/orion/webhook"),
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The address for the API server's reviews.")
    ] = "0.0.0.0:9443",
    health: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="The address for health and metrics, in plain HTTP. Empty: do not serve."
        ),
    ] = "0.0.0.0:8080",
    allocation: Allocation = "device-plugin",
    by_node_default: Annotated[
        str, typer.Option(metavar="KIND", help="With by-node: how pods get slots that need no claim.")
    ] = "device-plugin",
    spread: Annotated[
        bool,
        typer.Option(
            "--spread/--no-spread",
            help="Whether pods with a ResourceClaim go to GPUs with few tenants, or to the first GPU that fits.",
        ),
    ] = True,
    gpu_taint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY", help="A node taint that pods with a ResourceClaim tolerate; repeatable.", show_default="none"
        ),
    ] = None,
    require_share: Annotated[
        bool, typer.Option("--require-share", help="Refuse pods that ask for Orion and match no GPUShare.")
    ] = False,
    runtime_class: Annotated[
        str, typer.Option(help="The runtime class for pods with slots that name none. Empty: set none.")
    ] = "",
    kubelet_root: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="The kubelet's --root-dir on the nodes; pods with slots may not mount it."),
    ] = "/var/lib/kubelet",
    shares_per_namespace: Annotated[
        int, typer.Option(min=1, help="How many GPUShares of a namespace govern pods: the oldest ones.")
    ] = 200,
    leave_seconds: Annotated[
        float, typer.Option(min=0, max=600, help="How long to answer reviews after SIGTERM, in seconds.")
    ] = 5.0,
    finish_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            max=600,
            help="How long to keep open connections after that, in seconds. API servers close idle ones after 90.",
        ),
    ] = 95.0,
    api_server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CIDR",
            help="A network of the API servers; may be repeated. They keep a reserve that other senders cannot use.",
            show_default="unknown",
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The kubeconfig for the API server.", show_default="the pod's, else $KUBECONFIG")
    ] = None,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the webhook: it adds slots and the hook to pods that ask for them, and refuses pods that cannot work.

    It keeps no state; run two replicas. `orion explain pod` shows what the webhook would do to a pod.
    """
    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise Invalid(f"--log-level must be debug, info, warning or error, not {log_level!r}")
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    defaults = installation(
        allocation=allocation,
        spread=spread,
        by_node_default=by_node_default,
        gpu_taints=tuple(gpu_taint or ()),
        require_share=require_share,
        runtime_class=runtime_class,
        kubelet_root=kubelet_root,
        shares_per_namespace=shares_per_namespace,
    )
    times = (leave_seconds, finish_seconds)
    networks = tuple(map(_network, api_server or ()))
    _run(certificates, _address("--listen", listen), health, defaults, times, kubeconfig, networks)


def installation(**options: object) -> "Defaults":
    """Return the webhook's defaults from options.

    Raises:
        Invalid: one of them is invalid.
    """
    from orion.operator.webhook.defaults import Defaults

    return validated(Defaults, options)


def _run(
    folder: Path,
    listen: tuple[str, int],
    health: str,
    defaults: "Defaults",
    shutdown_s: tuple[float, float],
    kubeconfig: Path | None,
    api_servers: "tuple[Network, ...]",
) -> None:
    import asyncio

    from orion.api_server.credentials import find_access
    from orion.operator.webhook.serving import Listening, Webhook
    from orion.operator.webhook.tls import CERTIFICATE, KEY

    if health:
        _address("--health", health)
    listening = Listening(
        *listen,
        certificate=folder / CERTIFICATE,
        key=folder / KEY,
        exposition=health,
        leave_s=shutdown_s[0],
        finish_s=shutdown_s[1],
        api_servers=api_servers,
    )
    server = Webhook(find_access(kubeconfig), defaults, listening)
    asyncio.run(server.run(started=_log_port))


def _log_port(server: "Webhook") -> None:
    logging.getLogger(__name__).info("reviews on port %d", server.port)


def _network(text: str) -> "Network":
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise Invalid(f"--api-server must be a network such as 10.0.0.1/32: {error}") from None


def _address(option: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise Invalid(f"{option} must be HOST:PORT, such as 0.0.0.0:9443, not {text!r}")
    return host.strip("[]"), int(port)
