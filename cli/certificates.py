"""`orion certificates`: the webhook's certificates, shown, rotated at once, or looked after by this process alone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.cli.errors import Refused, wrong_value

if TYPE_CHECKING:
    from orion.operator.certificates.api import Api
    from orion.operator.certificates.settings import CertificateSettings

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="The webhook's certificates.")

Kubeconfig = Annotated[
    Path | None, typer.Option(help="How to reach the API server.", show_default="the pod's, else $KUBECONFIG")
]
Namespace = Annotated[str | None, typer.Option(help="Of the Secret and the Service.", show_default="orion-system")]
Secret = Annotated[str | None, typer.Option(help="What holds them.", show_default="orion-webhook-certificate")]
Service = Annotated[str | None, typer.Option(help="Of the webhook.", show_default="orion-webhook")]
Configurations = Annotated[
    list[str] | None,
    typer.Option(
        "--configuration",
        metavar="KIND/NAME",
        help="A webhook configuration whose caBundles are kept; may be repeated.",
        show_default="MutatingWebhookConfiguration/orion",
    ),
]
Replicas = Annotated[
    list[str] | None,
    typer.Option(
        "--replica",
        metavar="HOST:PORT",
        help="Where a replica answers; may be repeated.",
        show_default="the Service's EndpointSlices",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option("--name", help="A host name or address in the leaf beside the Service's own; may be repeated."),
]
Spread = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long every caBundle holds a new authority before it signs.",
        show_default="60",
    ),
]
Settle = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long every replica shows a new leaf before the authority of before is dropped.",
        show_default="60",
    ),
]
LookEvery = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="SECONDS", help="Between two looks; while certificates move at most 2.", show_default="10"
    ),
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
    """Show the certificates, who trusts them, and which replica shows which. No key is shown.

    The defaults are the names of a release called orion in orion-system; [bold]orion certificates rotate --help[/bold]
    has those of others. The last lines need a way to the pods' network: on a node, or in a pod.
    """
    settings = _settings(
        namespace=namespace, secret=secret, service=service, configurations=configuration, replicas=replica
    )

    async def work(api: "Api") -> None:
        from orion.operator.certificates.issuing import utc_now
        from orion.operator.certificates.showing import show

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
    """Begin a rotation now: a new authority is made, and the operator does the rest, in its order.

    The defaults are the names of a release called orion in orion-system. Of another one, NAME being how its objects
    begin: --secret NAME-webhook-certificate --service NAME-webhook --configuration MutatingWebhookConfiguration/NAME.
    """
    settings = _settings(namespace=namespace, secret=secret, service=service, configurations=configuration)

    async def work(api: "Api") -> None:
        from orion.operator.certificates.rotating import Rotation

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
    """Look after the certificates in the foreground, as the operator does. May be killed at any time, and run twice."""
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
        from orion.operator.certificates.rotating import Rotation

        await Rotation(api, settings).run()

    _run(kubeconfig, work)


def _duration(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _settings(**told: Any) -> "CertificateSettings":
    from pydantic import ValidationError

    from orion.operator.certificates.settings import CertificateSettings

    try:
        return CertificateSettings.model_validate(
            {name: value for name, value in told.items() if value not in (None, [])}
        )
    except ValidationError as error:
        raise wrong_value(error) from error


def _run(kubeconfig: Path | None, work: "Callable[[Api], Awaitable[None]]") -> None:
    from orion.api_server.credentials import NoCluster
    from orion.operator.certificates.api import ApiError
    from orion.operator.certificates.connecting import connected
    from orion.operator.certificates.rotating import NothingToRotate

    if kubeconfig is not None and not kubeconfig.is_file():
        raise Refused(f"--kubeconfig: there is no file {kubeconfig}", status=2)

    async def main() -> None:
        async with connected(kubeconfig) as api:
            await work(api)

    try:
        asyncio.run(main())
    except (ApiError, NoCluster, NothingToRotate, OSError) as error:
        raise Refused(str(error)) from error
