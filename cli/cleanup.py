"""`orion cleanup`: removes what Orion left on a cluster's objects after an uninstall."""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orion.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from orion.operator.cleanup.cleaning import Cleaned
    from orion.operator.reconciler.records import Named


def cleanup(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The kubeconfig for the API server.", show_default="the pod's, else $KUBECONFIG")
    ] = None,
    capacity: Annotated[
        bool, typer.Option("--capacity", help="Also remove resources orion.gpu/... with capacity 0 from nodes' status.")
    ] = False,
    test: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME", help="Delete this pod and the GPUShare of the same name, which `helm test` made."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """After an uninstall: remove what Orion left on nodes, GPUs and shares.

    It removes the labels orion.gpu/... from nodes and sets the health of
    GPUDevices to Unknown. All conditions of GPUDevices and GPUShares become
    Unknown, with the reason Uninstalled. It keeps what people wrote: specs,
    cordons, the label orion/enabled. It changes no pods. You may repeat it.

    [bold]helm uninstall[/bold] runs this command (value uninstall.cleanup).
    Run it yourself if the uninstall could not. While Orion is installed, its
    components write all of this again.

    [bold]orion cleanup --dry-run[/bold]     shows what would change
    [bold]orion cleanup --capacity[/bold]    run this 5 minutes after the uninstall: it
                                also removes resources orion.gpu/... with
                                capacity 0, which kubelets leave in nodes'
                                status (needs the right to patch nodes/status)

    Exit 1 if something could not be cleaned; everything else is clean then.
    """
    cleaned = _clean(kubeconfig, test=_named(test), capacity=capacity, dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps({"dryRun": dry_run} | dataclasses.asdict(cleaned)))
    else:
        for line in _lines(cleaned, dry_run):
            typer.echo(line)
    if cleaned.failed:
        more = f"; and {len(cleaned.failed) - 1} more" if len(cleaned.failed) > 1 else ""
        raise Unavailable(f"not everything could be cleaned: {cleaned.failed[0]}{more}")


def _named(test: str) -> "Named | None":
    from orion.operator.reconciler.records import Named

    namespace, slash, name = test.partition("/")
    if test and not (namespace and slash and name):
        raise Invalid(f"--test must be NAMESPACE/NAME, not {test!r}")
    return Named(namespace, name) if test else None


def _clean(kubeconfig: Path | None, *, test: "Named | None", capacity: bool, dry_run: bool) -> "Cleaned":
    import asyncio

    from orion.api_server.credentials import find_access
    from orion.api_server.requests import ApiServer
    from orion.operator.cleanup.cleaning import Cleaning

    async def work() -> "Cleaned":
        server = ApiServer(find_access(kubeconfig), "orion-cleanup")
        try:
            return await Cleaning(server, datetime.now(UTC), test=test, capacity=capacity, dry_run=dry_run).run()
        finally:
            await server.close()

    return asyncio.run(work())


def _lines(cleaned: "Cleaned", dry_run: bool) -> list[str]:
    """Return the changes as text for people: a line for each object, then a line with the totals."""
    lines = [f"node {name}: {', '.join(marks)}" for name, marks in sorted(cleaned.nodes.items())]
    lines += [f"GPUDevice {name}: Unknown" for name in sorted(cleaned.gpus)]
    lines += [f"GPUShare {name}: Unknown" for name in sorted(cleaned.shares)]
    lines += [f"{each}: {'to be deleted' if dry_run else 'deleted'}" for each in cleaned.deleted]
    counts = f"{len(cleaned.nodes)} nodes, {len(cleaned.gpus)} GPUs, {len(cleaned.shares)} shares"
    return [*lines, f"{'to be cleaned' if dry_run else 'cleaned'}: {counts}"]
