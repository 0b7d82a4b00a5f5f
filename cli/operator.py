"""`orion operator`: run the reconciler in the foreground."""

import logging
from pathlib import Path
from typing import Annotated, Literal

import typer

from orion.cli.errors import Refused, wrong_value


def operator(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The way to the API server.", show_default="the pod's service account, or yours")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(help="Look after pods and shares of this namespace only; may be repeated.", show_default="all"),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where /healthz, /readyz and /metrics are; empty: nowhere.")
    ] = "0.0.0.0:8080",
    lease_namespace: Annotated[
        str | None, typer.Option(help="Where the Lease is that decides who writes.", show_default="this pod's")
    ] = None,
    lease_name: Annotated[str, typer.Option(help="The name of that Lease.")] = "orion-operator",
    elect: Annotated[bool, typer.Option(help="Whether a Lease decides which of several operators writes.")] = True,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Objects written at the same time.")] = 16,
    census_seconds: Annotated[
        float, typer.Option(min=1, help="How often all objects are counted, to find what a cut watch has missed.")
    ] = 600,
    certificates: Annotated[
        Literal["operator", "cert-manager"] | None,
        typer.Option(
            help="Who makes the webhook's certificates: this process, or cert-manager where it is installed.",
            show_default="they are not looked after",
        ),
    ] = None,
    webhook_namespace: Annotated[
        str | None, typer.Option(help="Where the webhook's Service and Secret are.", show_default="--lease-namespace")
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
        typer.Option(help="The MutatingWebhookConfiguration whose caBundle is kept.", show_default="orion"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what kopf does, too.")] = False,
) -> None:
    """Run the operator: what GPUShare objects say becomes true of pods, and what is true becomes their status.

    Several may run; the one that holds the Lease writes, the others stand by with all objects known. The options that
    begin with --webhook count with --certificates alone.
    """
    if kubeconfig is not None and not kubeconfig.is_file():
        raise Refused(f"--kubeconfig: there is no file {kubeconfig}", status=2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.DEBUG if verbose else logging.WARNING)
    told: dict[str, object] = {
        "kubeconfig": kubeconfig,
        "namespaces": tuple(namespace or ()),
        "address": address,
        "lease_name": lease_name,
        "elect": elect,
        "concurrency": concurrency,
        "census_seconds": census_seconds,
    }
    webhook: dict[str, object] = {
        "namespace": webhook_namespace,
        "service": webhook_service,
        "secret": webhook_secret,
        "configurations": None
        if webhook_configuration is None
        else (f"MutatingWebhookConfiguration/{webhook_configuration}",),
        "source": certificates,
    }
    named = {name: value for name, value in webhook.items() if value is not None}
    _run(told | ({"lease_namespace": lease_namespace} if lease_namespace else {}), named if certificates else None)


def _run(told: dict[str, object], webhook: dict[str, object] | None) -> None:
    from pydantic import ValidationError

    from orion.api_server.credentials import NoCluster
    from orion.operator.certificates import rotating
    from orion.operator.certificates.settings import CertificateSettings
    from orion.operator.reconciler.serving import Stopped, run
    from orion.operator.reconciler.settings import ReconcilerSettings

    try:
        settings = ReconcilerSettings.model_validate(told)
    except ValidationError as error:
        raise wrong_value(error) from error
    beside = []
    if webhook is not None:
        own = {"namespace": settings.lease_namespace} | webhook
        try:
            beside.append(rotating.part(CertificateSettings.model_validate(own)))
        except ValidationError as error:
            raise wrong_value(error, "--webhook-") from error
    try:
        run(settings, beside)
    except (NoCluster, Stopped, OSError) as error:
        raise Refused(str(error)) from error
