"""`orion park` and `orion unpark`: let a be program leave the GPU's memory, and come back."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orion.cli import roots
from orion.errors import Conflict, Invalid, NotFound, Unavailable

if TYPE_CHECKING:
    from orion.node_agent.api import agent_pb2

POLL_SECONDS = 0.1

SlotOrProcess = Annotated[
    str, typer.Argument(metavar="SLOT|PROCESS", help="A slot, such as be-0, or the id of a process that uses one.")
]
Gpu = Annotated[str, typer.Option(metavar="UUID|INDEX|all", help="The GPU of the slot.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the slots as one JSON list.")]
Wait = Annotated[float, typer.Option(min=0, max=3600, help="Seconds to wait until the memory has moved.")]


def park(
    slot: SlotOrProcess, *, gpu: Gpu = "all", wait: Wait = 30.0, as_json: AsJson = False, root: roots.Root = None
) -> None:
    """Let a be program leave the GPU's memory until `orion unpark`: its launches wait, and it keeps its place.

    Its memory moves to the host. The program must have been started with [bold]orion run --park[/bold], or by a
    GPUShare with [bold]oversubscribe: park[/bold]. All slots of a program or pod leave together.

    [bold]orion park be-0[/bold]
    """  # fmt: skip
    _move(slot, gpu, True, wait, as_json, (root or roots.default_root()).absolute())


def unpark(
    slot: SlotOrProcess, *, gpu: Gpu = "all", wait: Wait = 30.0, as_json: AsJson = False, root: roots.Root = None
) -> None:
    """Let a program come back that `orion park` has sent away: as soon as there is room for it.

    [bold]orion unpark be-0[/bold]
    """
    _move(slot, gpu, False, wait, as_json, (root or roots.default_root()).absolute())


def _move(named: str, gpu: str, away: bool, wait: float, as_json: bool, root: Path) -> None:
    from orion.cli import agents, slot_choice, snapshots

    with agents.asking(root) as agent:
        wanted = list(_find(slot_choice.choose_gpus(agent.snapshot(), gpu), named))
        if not wanted:
            raise NotFound(f"no GPU of this agent has the slot or process {named!r}: `orion top` lists them")
        if len(wanted) > 1 and not named.isdigit():
            uuids = ", ".join(slot.gpu for slot in wanted)
            raise Invalid(f"several GPUs have a slot {named}: name one with --gpu: {uuids}")
        for slot in wanted:
            agent.park_slot(slot.gpu, slot.name, away)
        deadline = time.monotonic() + wait
        while True:
            slots = [_now(agent.snapshot(), slot) for slot in wanted]
            left = [slot for slot in slots if not _has_moved(slot, away)]
            if not left or time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)
    if as_json:
        print(json.dumps([snapshots.plain(slot) for slot in slots]))
    else:
        for slot in slots:
            print(f"{slot.name} of {slot.gpu}: {sentence(slot) or 'on the GPU'}")
    _complain(slots, left, away)


def _find(gpus: "list[agent_pb2.Gpu]", named: str) -> "Iterator[agent_pb2.Slot]":
    for gpu in gpus:
        for slot in gpu.slots:
            if slot.name == named or named in [str(client.process_id) for client in slot.clients]:
                yield slot


def _now(snapshot: "agent_pb2.Snapshot", before: "agent_pb2.Slot") -> "agent_pb2.Slot":
    for gpu in snapshot.gpus:
        for slot in gpu.slots:
            if (slot.gpu, slot.name) == (before.gpu, before.name):
                return slot
    raise NotFound(f"slot {before.name} of {before.gpu} has ended")


def _has_moved(slot: "agent_pb2.Slot", away: bool) -> bool:
    if slot.parking.state in ("refused", "lost") or not slot.clients:
        return True
    return slot.parking.state == ("parked" if away else "")


def _complain(slots: "list[agent_pb2.Slot]", left: "list[agent_pb2.Slot]", away: bool) -> None:
    for slot in slots:
        if slot.parking.state in ("refused", "lost"):
            raise Conflict(f"{slot.name} of {slot.gpu} {slot.parking.reason}")
    for slot in left:
        what = "has not left the GPU's memory yet" if away else "waits until there is room for it on the GPU"
        raise Unavailable(f"{slot.name} of {slot.gpu} {what}: look again with `orion top`")


def sentence(slot: "agent_pb2.Slot") -> str:
    """Return where the memory of a slot is, for people; empty: all of it stays on the GPU."""
    from orion.cli.sizes import format_size

    parking = slot.parking
    if not parking.state:
        return "its memory moves page by page" if slot.memory_unified else ""
    text = f"{parking.state} {parking.seconds:.0f} s"
    if parking.state == "parked":
        text += f", {format_size(parking.bytes)} in host memory"
    return text + (" (by orion park)" if parking.wished else "")
