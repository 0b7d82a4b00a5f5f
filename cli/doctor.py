"""`orion doctor`: finds what prevents sharing on this machine, and says how to fix it."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from orion.cli import roots

if TYPE_CHECKING:
    from orion.cli.checks import Check


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    simulated: Annotated[bool, typer.Option("--simulated", help="Leave out the checks for a real GPU.")] = False,
    root: roots.Root = None,
) -> None:
    """Check this machine: the hook, the driver, the kernel, the agent. Exit 1 if sharing would not work.

    The command changes nothing. Each finding says what to do.
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
        text = Text(check.reason, overflow="fold")  # paths stay whole
        if check.fix:
            text.append(f"\n-> {check.fix}", style="italic")
        table.add_row(Text(check.status, style=styles[check.status]), Text(check.name), text)
    console.print(table)
    console.print(
        "Sharing works here." if works else "Sharing does not work here: fix the checks that fail.", style="bold"
    )
