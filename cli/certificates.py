"""`orion certificates`: shows the webhook's certificates, rotates them at once, or manages them in this process."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.cli.errors import existing_kubeconfig, validated

if TYPE_CHECKING:
    from orion.operator.certificates.api import Api
    from orion.operator.certificates.settings import CertificateSettings

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="The webhook's certificates.")

Kubeconfig = Annotated[
    Path | None, typer.Option(help="The kubeconfig for the API server.", show_default="the pod's, else $KUBECONFIG")
]
Namespace = Annotated[
    str | None, typer.Option(help="The namespace of the Secret and the Service.", show_default="orion-system")
]
Secret = Annotated[
    str | None, typer.Option(help="The Secret with the certificates.", show_default="orion-webhook-certificate")
]
Service = Annotated[str | None, typer.Option(help="The webhook's Service.", show_default="orion-webhook")]
Configurations = Annotated[
    list[str] | None,
    typer.Option(
        "--configuration",
        metavar="KIND/NAME",
        help="A webhook configuration whose caBundles are managed; may be repeated.",
        show_default="MutatingWebhookConfiguration/orion",
    ),
]
Replicas = Annotated[
    list[str] | None,
    typer.Option(
        "--replica",
        metavar="HOST:PORT",
        help="The address of a replica; may be repeated.",
        show_default="the Service's EndpointSlices",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name", help="Another host name or address for the certificate, besides the Service's; may be repeated."
    ),
]
_seconds = functools.partial(typer.Option, min=0, metavar="SECONDS")
Spread = Annotated[
    float | None,
    _seconds(help="How long every caBundle contains a new authority before that authority signs.", show_default="60"),
]
Settle = Annotated[
    float | None,
    _seconds(
        help="How long every replica serves a new certificate before the old authority is removed.", show_default="60"
    ),
]
LookEvery = Annotated[
    float | None, _seconds(help="Seconds between two checks; during a rotation at most 2.", show_default="10")
]


@app.command()
def show(
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    secret: Secret = None,
    service: Service = None,
    configuration: Configurations = None,
    replica: Replicas = None,
) -> None:
    """Show the certificates, which caBundles trust them, and which replica serves which. No key is shown.

    The defaults are the names of a release orion in orion-system; [bold]orion certificates rotate --help[/bold] says
    the names of other releases. The last lines need access to the pods' network: run this on a node or in a pod.
    """
    from orion.operator.certificates.issuing import utc_now
    from orion.operator.certificates.showing import show

    settings = _settings(
        namespace=namespace, secret=secret, service=service, configurations=configuration, replicas=replica
    )

    async def work(api: "Api") -> None:
        for line in await show(api, settings, utc_now()):
            typer.echo(line)

    _run(kubeconfig, work)


@app.command()
def rotate(
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    secret: Secret = None,
    service: Service = None,
    configuration: Configurations = None,
) -> None:
    """Start a rotation now: this makes a new authority, and the operator completes the rotation.

    The defaults are the names of a release orion in orion-system. For another release, whose objects begin with NAME:
    --secret NAME-webhook-certificate --service NAME-webhook --configuration MutatingWebhookConfiguration/NAME.
    """
    from orion.operator.certificates.rotating import Rotation

    settings = _settings(namespace=namespace, secret=secret, service=service, configurations=configuration)

    async def work(api: "Api") -> None:
        typer.echo(await Rotation(api, settings).rotate("a person asked for it"))

    _run(kubeconfig, work)


@app.command()
def run(
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    secret: Secret = None,
    service: Service = None,
    configuration: Configurations = None,
    replica: Replicas = None,
    name: Names = None,
    spread: Spread = None,
    settle: Settle = None,
    look_every: LookEvery = None,
) -> None:
    """Manage the certificates in the foreground, as the operator does. It may be killed at any time, and run twice."""
    from orion.operator.certificates.rotating import Rotation

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = _settings(
        namespace=namespace,
        secret=secret,
        service=service,
        configurations=configuration,
        replicas=replica,
        names=name,
        spread=_duration(spread),
        settle=_duration(settle),
        look_every=_duration(look_every),
        look_every_while_moving=_duration(None if look_every is None else min(look_every, 2)),
    )

    async def work(api: "Api") -> None:
        await Rotation(api, settings).run()

    _run(kubeconfig, work)


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _settings(**options: Any) -> "CertificateSettings":
    from orion.operator.certificates.settings import CertificateSettings

    return validated(CertificateSettings, {name: each for name, each in options.items() if each not in (None, [])})


def _run(kubeconfig: Path | None, work: "Callable[[Api], Awaitable[None]]") -> None:
    from orion.operator.certificates.connecting import connected

    existing_kubeconfig(kubeconfig)

    async def main() -> None:
        async with connected(kubeconfig) as api:
            await work(api)

    asyncio.run(main())
