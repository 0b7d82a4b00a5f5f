"""`orion await-claims`: waits until no pod uses a ResourceClaim of Orion, before an uninstall."""

from pathlib import Path
from typing import Annotated

import typer

from orion.errors import Unavailable


def await_claims(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The kubeconfig for the API server.", show_default="the pod's, else $KUBECONFIG")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, max=3_600, help="How long to wait for the pods to end.")] = 60.0,
) -> None:
    """Before an uninstall: wait until no pod uses a ResourceClaim of Orion.

    The kubelet needs Orion's driver to end such pods, so the driver must go
    last. [bold]helm uninstall[/bold] runs this command before it removes anything
    (value uninstall.claimsSeconds). It changes nothing.

    Exit 1 if pods with claims are left; the message names them.
    """
    import asyncio

    from orion.api_server.credentials import find_access
    from orion.api_server.requests import ApiError, ApiServer
    from orion.operator.cleanup.claims_in_use import await_end

    async def work() -> None:
        server = ApiServer(find_access(kubeconfig), "orion-await-claims")
        try:
            await await_end(server, seconds)
        except ApiError as error:
            raise Unavailable(f"the ResourceClaims cannot be read: {error}") from None
        finally:
            await server.close()

    asyncio.run(work())
    typer.echo("no pod uses a ResourceClaim of Orion")
