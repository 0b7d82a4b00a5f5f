"""`orion explain`: says what admission would do to a pod, and why a slot has its GPU time; changes nothing."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.cli.explain_slot import slot
from orion.cli.webhook import installation
from orion.errors import Unreadable

if TYPE_CHECKING:
    from orion.cli.pod_sources import Source
    from orion.crds.grant import PodGrant
    from orion.operator.webhook.decisions import Decision

app = typer.Typer(no_args_is_help=True, help="Say what Orion would do to a pod, or why a slot has its GPU time.")
app.command()(slot)


@app.callback()
def explain() -> None:
    """Say what Orion would do to a pod, or why a slot has its GPU time."""


@app.command()
def pod(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The pod; with -f also a Deployment, Job, ... of that name."),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="The pod's namespace.", show_default="the context's")
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            "-f",
            help="A YAML file, or a folder of such files, with the pod or its Deployment, Job, ..., and optionally "
            "GPUShares; repeatable.",
        ),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the cluster; needs -f.")] = False,
    allocation: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="The webhook's option of the same name.",
            show_default="dra if the pod has a claim of the webhook, else device-plugin",
        ),
    ] = None,
    spread: Annotated[bool, typer.Option("--spread/--no-spread", help="The webhook's option of the same name.")] = True,
    require_share: Annotated[
        bool, typer.Option("--require-share", help="The webhook's option of the same name.")
    ] = False,
    runtime_class: Annotated[str, typer.Option(help="The webhook's option of the same name.")] = "",
    kubelet_root: Annotated[
        str, typer.Option(metavar="FOLDER", help="The webhook's option of the same name.")
    ] = "/var/lib/kubelet",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show as a diff what the webhook would change in a pod, and why. Exit 1 if it would refuse the pod.

    [bold]orion explain pod -f deployment.yaml[/bold]

    The command changes nothing. For an existing pod it shows what would happen if the pod were created again, and what
    the pod waits for if it has a ResourceClaim and no node.
    """
    from pydantic import ValidationError

    from orion.cli import pod_sources
    from orion.operator.webhook.admitting import admit
    from orion.operator.webhook.decisions import Outcome

    source = pod_sources.find(name, namespace, file or (), offline)
    if allocation is None:
        allocation = "dra" if pod_sources.has_claim(source.pod) else "device-plugin"
    defaults = installation(
        allocation=allocation,
        spread=spread,
        require_share=require_share,
        runtime_class=runtime_class,
        kubelet_root=kubelet_root,
    )
    try:
        decision = admit(source.pod, source.cluster, defaults)
    except ValidationError as error:
        first = error.errors()[0]
        raise Unreadable(f"{source.what} is no pod: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if as_json:
        print(json.dumps(_plain(source, decision)))
    else:
        _show(source, decision)
    raise typer.Exit(1 if decision.outcome is Outcome.REFUSED else 0)


def _plain(source: "Source", decision: "Decision") -> dict[str, Any]:
    from orion.operator.webhook.patching import difference

    return {
        "what": source.what,
        "namespace": source.namespace,
        "outcome": str(decision.outcome),
        "reason": str(decision.reason),
        "sentence": decision.sentence,
        "because": list(decision.because),
        "cautions": [*source.misplaced, *decision.cautions],
        "waits": list(source.waits),
        "share": decision.share,
        "grant": grant.plain() if (grant := _grant(source, decision)) else None,
        "patch": difference(source.pod, decision.pod),
    }


def _show(source: "Source", decision: "Decision") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    where = f"{source.what} in namespace {source.namespace}"
    for line in _headlines(where, decision):
        console.print(line)
    for sentence in decision.because:
        console.print(f"  {escape(sentence)}")
    if grant := _grant(source, decision):
        console.print(f"  its grant: {escape(grant.as_json())}")
    for caution in (*source.misplaced, *decision.cautions):
        console.print(f"  [yellow]! {escape(caution)}[/yellow]")
    if source.waits:
        console.print("  it waits for GPUs:")
    for sentence in source.waits:
        console.print(f"  {escape(sentence)}")
    for line in _diff(source.pod, decision.pod):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(f"[{style}]{escape(line)}[/{style}]" if style else escape(line))


def _grant(source: "Source", decision: "Decision") -> "PodGrant | None":
    """Return what the pod's containers may do; None: the pod gets no slots."""
    from orion.crds.grant import granted

    if decision.priority is None:
        return None
    found = source.cluster.shares.claiming(decision.share, {}) if decision.share else [None]
    return granted(decision.priority, found[0], decision.slots, decision.probed)


def _headlines(where: str, decision: "Decision") -> list[str]:
    from rich.markup import escape

    from orion.operator.webhook.decisions import Outcome, Reason

    if decision.outcome is Outcome.REFUSED:
        return [f"[bold red]refused[/bold red]: {escape(where)}", f"  {escape(decision.sentence)}"]
    if decision.reason is Reason.NOT_OURS:
        return [
            f"[bold]not managed[/bold]: {escape(where)}",
            "  the pod has no annotation orion/priority and asks for no slot (orion.gpu/hp, orion.gpu/be)",
        ]
    word = "[bold]unchanged[/bold]" if decision.outcome is Outcome.UNCHANGED else "[bold green]changed[/bold green]"
    return [f"{word}: {escape(where)}"]


def _diff(before: Any, after: Any) -> list[str]:
    """Return the differences as a unified diff of YAML."""
    import difflib

    import yaml

    old, new = (yaml.safe_dump(each, sort_keys=False, width=4_000).splitlines() for each in (before, after))
    return list(difflib.unified_diff(old, new, lineterm=""))[2:]
