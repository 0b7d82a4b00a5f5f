"""`orion explain slot`: says why a slot of this machine has the GPU time that it has, as its agent reports it."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orion.cli import roots
from orion.errors import NotFound

if TYPE_CHECKING:
    from orion.node_agent.api import agent_pb2

    Found = list[tuple[agent_pb2.Gpu, agent_pb2.Slot]]


def slot(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The slot, such as be-0; without it: all that have clients.")
    ] = None,
    gpu: Annotated[str, typer.Option(metavar="UUID|INDEX|all", help="The GPU to look at.")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    root: roots.Root = None,
) -> None:
    """Say what a slot asked for, what it got in about the last 10 s, and why it got no more.

    [bold]orion explain slot be-0[/bold]
    """
    from orion.cli import agents

    snapshot = agents.ask((root or roots.default_root()).absolute())
    found = _find(snapshot, name, gpu)
    if as_json:
        print(json.dumps({"slots": [_plain(each, its) for each, its in found]}))
    else:
        _show(found)


def _find(snapshot: "agent_pb2.Snapshot", name: str | None, gpu: str) -> "Found":
    from orion.cli import slot_choice

    slots = [(each, slot) for each in slot_choice.choose_gpus(snapshot, gpu) for slot in each.slots]
    found = [(each, slot) for each, slot in slots if slot.name == name or (name is None and slot.clients)]
    if not found and name is not None:
        known = ", ".join(sorted({slot.name for _, slot in slots})) or "none"
        raise NotFound(f"there is no slot {name!r}; the slots are: {known}")
    return found


def _plain(gpu: "agent_pb2.Gpu", slot: "agent_pb2.Slot") -> dict[str, Any]:
    from orion.cli import snapshots

    return {"gpu_index": gpu.index, **snapshots.plain(slot)}


def _show(found: "Found") -> None:
    from rich.console import Console

    from orion.cli.slot_table import slot_table

    console = Console(highlight=False, markup=False)
    if not found:
        console.print("no slot has a client")
    for gpu, slot in found:
        seconds = f"{slot.usage.recent.seconds:.0f} s" if slot.usage.recent.seconds else "time"
        programs = ", ".join(f"{each.command} {each.process_id}" for each in slot.clients) or "no process"
        console.print(f"GPU {gpu.index}, slot {slot.name} ({programs}), parts of the last {seconds}:")
        console.print(slot_table(gpu, [slot], recent=True))
        for reason in slot.reasons:
            console.print(f"  - {reason.message}", soft_wrap=True)
