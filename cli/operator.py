"""`orion operator`: run the reconciler in the foreground."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from orion.cli.errors import existing_kubeconfig, validated
from orion.cli.webhook import Allocation


def operator(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="The kubeconfig for the API server.", show_default="the pod's service account, or yours"),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(help="Reconcile pods and shares of this namespace only; may be repeated.", show_default="all"),
    ] = None,
    address: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where to serve /healthz, /readyz and /metrics. Empty: do not serve."),
    ] = "0.0.0.0:8080",
    lease_namespace: Annotated[
        str | None, typer.Option(help="The namespace of the Lease.", show_default="this pod's")
    ] = None,
    lease_name: Annotated[str, typer.Option(help="The name of the Lease.")] = "orion-operator",
    elect: Annotated[bool, typer.Option(help="Let a Lease decide which of several operators writes.")] = True,
    concurrency: Annotated[
        int, typer.Option(min=1, max=256, help="How many objects the operator writes at the same time.")
    ] = 16,
    resync_seconds: Annotated[
        float,
        typer.Option(min=1, help="Period of the full resync, which finds changes that an interrupted watch missed."),
    ] = 600,
    allocation: Allocation = "device-plugin",
    shares_per_namespace: Annotated[
        int, typer.Option(min=1, help="How many GPUShares of a namespace govern pods: the oldest ones.")
    ] = 200,
    certificates: Annotated[
        bool, typer.Option("--certificates", help="Make and renew the webhook's certificates.")
    ] = False,
    webhook_namespace: Annotated[
        str | None,
        typer.Option(help="The namespace of the webhook's Service and Secret.", show_default="--lease-namespace"),
    ] = None,
    webhook_service: Annotated[
        str | None, typer.Option(help="The webhook's Service.", show_default="orion-webhook")
    ] = None,
    webhook_secret: Annotated[
        str | None,
        typer.Option(help="The Secret that the webhook mounts.", show_default="orion-webhook-certificate"),
    ] = None,
    webhook_configuration: Annotated[
        str | None,
        typer.Option(help="The MutatingWebhookConfiguration whose caBundle is managed.", show_default="orion"),
    ] = None,
    mps_daemons: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The DaemonSet of the MPS daemons, in the Lease's namespace. When it changes, the operator replaces "
            "its pods that never started.",
            show_default="none",
        ),
    ] = None,
    node_pods_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where node agents get the pods of their node.", show_default="not served"
        ),
    ] = None,
    node_pods_name: Annotated[
        str | None,
        typer.Option(
            metavar="DNS", help="The host name by which agents call.", show_default="orion-operator.NAMESPACE.svc"
        ),
    ] = None,
    node_pods_config_map: Annotated[
        str, typer.Option(metavar="NAME", help="The ConfigMap with the certificates for agents, beside the Lease.")
    ] = "orion-operator",
    node_pods_agents: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="The service account of the node agents.",
            show_default="orion-agent beside the Lease",
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also log what kopf does.")] = False,
) -> None:
    """Run the operator: it tells node agents what GPUShares grant to their pods, and writes the status of GPUShares.

    Several operators may run. The one that holds the Lease writes; the others watch all objects. All answer agents. The
    options --webhook-... need --certificates.
    """
    existing_kubeconfig(kubeconfig)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.DEBUG if verbose else logging.WARNING)
    options: dict[str, object] = {
        "kubeconfig": kubeconfig,
        "namespaces": tuple(namespace or ()),
        "address": address,
        "lease_name": lease_name,
        "elect": elect,
        "concurrency": concurrency,
        "resync_seconds": resync_seconds,
        "allocation": allocation,
        "shares_per_namespace": shares_per_namespace,
    }
    webhook: dict[str, object] = {
        "namespace": webhook_namespace,
        "service": webhook_service,
        "secret": webhook_secret,
        "configuration": webhook_configuration,
    }
    named = {name: value for name, value in webhook.items() if value is not None}
    options |= {"lease_namespace": lease_namespace} if lease_namespace else {}
    node_pods: dict[str, object] | None = None
    if node_pods_address:
        node_pods = {
            "address": node_pods_address,
            "name": node_pods_name,
            "config_map": node_pods_config_map,
            "agents": node_pods_agents,
        }
    _run(options, named if certificates else None, mps_daemons, node_pods)


def _run(
    options: dict[str, object],
    webhook: dict[str, object] | None,
    daemon_set: str | None,
    node_pods: dict[str, object] | None,
) -> None:
    from orion.operator.certificates import rotating
    from orion.operator.certificates.settings import CertificateSettings
    from orion.operator.node_pods.settings import NodePodsSettings
    from orion.operator.reconciler import mps_daemons
    from orion.operator.reconciler.serving import Part, run
    from orion.operator.reconciler.settings import ReconcilerSettings

    settings = validated(ReconcilerSettings, options)
    beside: list[Part] = []
    if daemon_set is not None:
        beside.append(mps_daemons.part(settings.lease_namespace, daemon_set))
    if webhook is not None:
        own = {"namespace": settings.lease_namespace} | webhook
        beside.append(rotating.part(validated(CertificateSettings, own, "--webhook-")))
    serves = None
    if node_pods is not None:
        namespace = settings.lease_namespace
        defaults = {"name": f"orion-operator.{namespace}.svc", "agents": f"{namespace}/orion-agent"}
        chosen = {name: value for name, value in node_pods.items() if value is not None}
        own = {"namespace": namespace, "replica": settings.identity}
        serves = validated(NodePodsSettings, defaults | own | chosen, "--node-pods-")
    run(settings, beside, serves)
