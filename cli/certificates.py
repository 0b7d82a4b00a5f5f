"""`orion certificates`: shows the webhook's certificates, rotates them at once, or manages them in this process."""

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
Configuration = Annotated[
    str | None, typer.Option(help="The MutatingWebhookConfiguration whose caBundle is managed.", show_default="orion")
]
Service = Annotated[str | None, typer.Option(help="The webhook's Service.", show_default="orion-webhook")]
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
DropRetiredAfter = Annotated[
    float | None,
    _seconds(
        help="How old a new authority's certificate is before the old authority is removed.", show_default="86400"
    ),
]
LookEvery = Annotated[float | None, _seconds(help="Seconds between two checks.", show_default="5")]


@app.command()
def show(
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    secret: Secret = None,
    configuration: Configuration = None,
) -> None:
    """Show the certificates, and whether the API server trusts them. No key is shown.

    The defaults are the names of a release orion in orion-system; [bold]orion certificates rotate --help[/bold] says
    the names of other releases.
    """
    from orion.operator.certificates.issuing import utc_now
    from orion.operator.certificates.showing import show

    settings = _settings(namespace=namespace, secret=secret, configuration=configuration)

    async def work(api: "Api") -> None:
        for line in await show(api, settings, utc_now()):
            typer.echo(line)

    _run(kubeconfig, work)


@app.command()
def rotate(
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    secret: Secret = None,
    configuration: Configuration = None,
) -> None:
    """Make a new authority now. The operator signs a new certificate with it once every API server trusts it.

    The defaults are the names of a release orion in orion-system. For another release, whose objects begin with NAME:
    --secret NAME-webhook-certificate --configuration NAME.
    """
    from orion.operator.certificates.rotating import Rotation

    settings = _settings(namespace=namespace, secret=secret, configuration=configuration)

    async def work(api: "Api") -> None:
        typer.echo(await Rotation(api, settings).rotate("a person asked for it"))

    _run(kubeconfig, work)


@app.command()
def run(
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = None,
    secret: Secret = None,
    configuration: Configuration = None,
    service: Service = None,
    name: Names = None,
    spread: Spread = None,
    drop_retired_after: DropRetiredAfter = None,
    look_every: LookEvery = None,
) -> None:
    """Manage the certificates in the foreground, as the operator does. It may be killed at any time, and run twice."""
    from orion.operator.certificates.rotating import Rotation

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = _settings(
        namespace=namespace,
        secret=secret,
        configuration=configuration,
        service=service,
        names=name,
        spread=_duration(spread),
        drop_retired_after=_duration(drop_retired_after),
        look_every=_duration(look_every),
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
    import asyncio

    from orion.operator.certificates.connecting import connected

    existing_kubeconfig(kubeconfig)

    async def main() -> None:
        async with connected(kubeconfig) as api:
            await work(api)

    asyncio.run(main())
