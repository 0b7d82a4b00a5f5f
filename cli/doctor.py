"""`orion doctor`: what on this machine would keep sharing from working, and how to mend it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orion.cli import roots

if TYPE_CHECKING:
    from orion.cli.checks import Check


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    simulated: Annotated[bool, typer.Option("--simulated", help="Leave out what only a real GPU needs.")] = False,
    root: Annotated[Path | None, typer.Option(help="The agent's folder.", show_default="/run/orion as root")] = None,
) -> None:
    """Look at this machine: the hook, the driver, the kernel, the agent. Exit 1 if sharing would not work.

    Nothing is changed. Each finding says what to do about it.
    """
    from orion.cli.checks import Status, examine

    checks = list(examine((root or roots.default_root()).absolute(), simulated))
    works = not any(check.status is Status.FAIL for check in checks)
    if as_json:
        print(json.dumps({"ok": works, "checks": [check.model_dump(mode="json") for check in checks]}))
    else:
        _show(checks, works)
    raise typer.Exit(0 if works else 1)


def _show(checks: "list[Check]", works: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    styles = {"ok": "green", "note": "yellow", "fail": "bold red"}
    table = Table(box=None, show_header=False, pad_edge=False)
    for check in checks:
        told = Text(check.reason)
        if check.mend:
            told.append(f"\n-> {check.mend}", style="italic")
        table.add_row(Text(check.status, style=styles[check.status]), Text(check.name), told)
    console.print(table)
    console.print("Sharing works here." if works else "Sharing does not work here: mend what says fail.", style="bold")
