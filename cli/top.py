"""`orion top`: shows the GPUs and their clients, live."""

import json
import signal
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from orion.cli import roots

if TYPE_CHECKING:
    from orion.node_agent.api.client import AgentClient

ONCE_SECONDS = 0.6  # between the two reads of --once; clients count their launches every 0.25 s
OTHERS_SECONDS = 5.0  # between two searches for other agents


def top(
    once: Annotated[bool, typer.Option("--once", help="Read twice, print once and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two updates.")] = 1.0,
    root: roots.Root = None,
) -> None:
    """Show GPUs and clients live: which are busy, and which wait for hp.

    [bold]gated[/bold] is the share of time that a client waited for hp. [bold]gpu[/bold] is a be client's share of GPU
    time, or the factor (xN) by which overlap slowed hp's work. These and [bold]launches/s[/bold] are averages between
    two reads of the counters. For each slot, [bold]due[/bold], [bold]charged[/bold], [bold]measured[/bold] and
    [bold]waited[/bold] are parts of about the last second. Ctrl-C ends the command.
    """
    from orion.cli import agents, snapshots

    place = (root or roots.default_root()).absolute()
    with agents.asking(place) as agent:
        if as_json:
            print(json.dumps(snapshots.plain(agent.snapshot())))
        elif once:
            _print_once(agent, place)
        else:
            _watch(agent, place, interval)


def _print_once(agent: "AgentClient", root: Path) -> None:
    from rich.console import Console

    from orion.cli.other_agents import warnings
    from orion.cli.rates import Rates
    from orion.cli.top_picture import picture

    console, rates = Console(), Rates()
    for snapshot in islice(agent.watch(ONCE_SECONDS), 2):
        known = rates.update(snapshot)
    console.print(picture(snapshot, known, warnings(root, snapshot), console))


def _watch(agent: "AgentClient", root: Path, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from orion.cli.other_agents import warnings
    from orion.cli.rates import Rates
    from orion.cli.top_picture import picture

    console, rates, others, due = Console(), Rates(), list[str](), 0.0
    signal.signal(signal.SIGTERM, _end)
    with Live(console=console, screen=True, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        for snapshot in agent.watch(interval):
            if snapshot.taken_seconds >= due:
                others, due = warnings(root, snapshot), snapshot.taken_seconds + OTHERS_SECONDS
            shown = picture(snapshot, rates.update(snapshot), others, console)
            if live:
                live.update(shown, refresh=True)
            else:
                console.print(shown)  # to a pipe or a file: one update after the other


def _end(number: int, frame: object) -> NoReturn:
    """End by an exception, which gives the terminal back: its other screen, and the cursor."""
    raise SystemExit(128 + number)
