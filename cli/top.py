"""`orion top`: the GPUs and their clients, live."""

import json
from contextlib import nullcontext
from dataclasses import astuple
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orion.cli import roots

if TYPE_CHECKING:
    from rich.console import RenderableType

    from orion.node_agent.api import agent_pb2
    from orion.node_agent.api.client import AgentClient

ONCE_SECONDS = 0.2  # rates need two looks


def top(
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")] = 1.0,
    root: Annotated[Path | None, typer.Option(help="The agent's folder.", show_default="/run/orion as root")] = None,
) -> None:
    """Show GPUs and clients live: who is busy, who waits at the gate, and for how much of the time.

    [bold]launches/s[/bold], [bold]gated[/bold] (share of the time spent waiting for hp) and [bold]gpu[/bold] (be: GPU
    time; hp: how much longer its work took with overlap, as xN) are over the last interval. Ctrl-C ends it.
    """
    from orion.cli import agents, snapshots

    place = (root or roots.default_root()).absolute()
    with agents.asking(place) as agent:
        if as_json:
            print(json.dumps(snapshots.plain(agent.snapshot())))
        elif once:
            _print_once(agent)
        else:
            _watch(agent, interval)


def _print_once(agent: "AgentClient") -> None:
    from rich.console import Console

    before, now = islice(agent.watch(ONCE_SECONDS), 2)
    Console().print(_picture(before, now, ONCE_SECONDS))


def _watch(agent: "AgentClient", interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console, before = Console(), None
    with Live(console=console, screen=True, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        for snapshot in agent.watch(interval):
            picture = _picture(before, snapshot, interval)
            if live:
                live.update(picture, refresh=True)
            else:
                console.print(picture)  # into a pipe or a file: one after the other
            before = snapshot


def _picture(before: "agent_pb2.Snapshot | None", now: "agent_pb2.Snapshot", seconds: float) -> "RenderableType":
    """Return one table a GPU."""
    from rich.console import Group
    from rich.text import Text

    earlier = {gpu.uuid: gpu for gpu in before.gpus} if before else {}
    head = Text(f"orion {now.agent_version}, agent {now.agent_process_id}", style="dim")
    tables = [_table(gpu, earlier.get(gpu.uuid), seconds) for gpu in now.gpus]
    return Group(head, *(tables or [Text("this agent has no GPU")]))


def _table(gpu: "agent_pb2.Gpu", before: "agent_pb2.Gpu | None", seconds: float) -> "RenderableType":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from orion.cli import snapshots
    from orion.cli.sizes import format_size

    used = f"{format_size(gpu.memory_used_bytes)} of " if gpu.memory_used_bytes else ""
    title = (
        f"GPU {gpu.index}  {gpu.model}{' (simulated)' if gpu.simulated else ''}  {used}{format_size(gpu.memory_bytes)}"
    )
    policy = f"policy {gpu.policy}, {_budget(gpu)}window {gpu.window_us} us, hp busy {gpu.hp_busy_ratio:.0%}"
    policy += "".join(f"\n! {condition.message}" for condition in gpu.conditions)
    rows = snapshots.rows(gpu, before, seconds)
    table = Table(title=f"{title}\n{policy}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("slot", "process", "command", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("launches/s", "gated", "gpu", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    if any(row.condition for row in rows):
        table.add_column("condition")
    styles = {"busy": "green", "gated": "yellow", "held": "yellow", "stopped": "red", "empty": "dim"}
    for row in rows:
        # Text, not markup: a client's command is any bytes.
        table.add_row(*(Text(cell) for cell in astuple(row)[: len(table.columns)]), style=styles.get(row.state))
    return table


def _budget(gpu: "agent_pb2.Gpu") -> str:
    """Return what hp's owner allows, where that is not the default."""
    found = []
    if gpu.policy == "orion" and gpu.settings.max_slowdown > 1:
        found.append(f"max slowdown {gpu.settings.max_slowdown:g}, ")
    if gpu.settings.minimum_share:
        found.append(f"be at least {gpu.settings.minimum_share:.0%}, ")
    return "".join(found)
