"""Draws what `orion top` shows: a panel for each GPU, with bars like nvitop's and a table of its clients.

The panel needs 70 columns. rich omits colours if the output is no terminal.
"""

from collections.abc import Mapping

from rich import box
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orion.cli import park
from orion.cli.rates import ClientRates, Key, key
from orion.cli.sizes import format_size
from orion.cli.slot_table import slot_table
from orion.node_agent.api import agent_pb2

WIDE = 96  # columns from which the units of memory are written out
_STATES = {
    "busy": "green",
    "running": "green",
    "gated": "yellow",
    "held": "yellow",
    "parked": "blue",
    "stopped": "bold red",
}
_EMPTY = "dim"


def picture(
    snapshot: agent_pb2.Snapshot, rates: Mapping[Key, ClientRates], warnings: list[str], console: Console
) -> RenderableType:
    """Return a panel for each GPU.

    Args:
        snapshot: what is shown.
        rates: of the clients, as `Rates.update` returns them.
        warnings: sentences about the machine, shown at the top.
        console: where it will be shown; decides on width and characters.
    """
    head = Text(f"orion {snapshot.agent_version}, agent {snapshot.agent_process_id}", style="dim")
    lines = [Text(f"! {warning}", style="yellow") for warning in warnings]
    panels: list[RenderableType] = [_panel(gpu, rates, console) for gpu in snapshot.gpus]
    return Group(head, *lines, *(panels or ["this agent has no GPU"]))


def _panel(gpu: agent_pb2.Gpu, rates: Mapping[Key, ClientRates], console: Console) -> Panel:
    # Text, not markup: a model and a client's command are any text.
    simulated = " (simulated)" if gpu.simulated and "imulated" not in gpu.model else ""
    title = Text(f"GPU {gpu.index}  {gpu.model}{simulated}", style="bold")
    active = [slot for slot in _in_order(gpu) if slot.clients]
    parts: list[RenderableType] = [_bars(gpu, rates, console), ""]
    parts += [slot_table(gpu, active), ""] if active else []
    parts.append(_clients(gpu, rates, console.width >= WIDE))
    parts += [Text(f"{slot.name}: {where}") for slot in active if (where := park.sentence(slot))]
    parts += [Text(f"! {sentence}", style="yellow") for sentence in _sentences(gpu)]
    return Panel(Group(*parts), title=title, title_align="left", box=box.ROUNDED, border_style="dim", padding=(0, 1))


def _bars(gpu: agent_pb2.Gpu, rates: Mapping[Key, ClientRates], console: Console) -> Table:
    clients = [(slot, client) for slot in gpu.slots for client in slot.clients]
    used = gpu.memory_used_bytes or sum(
        client.memory_bytes for slot, client in clients if slot.parking.state != "parked"
    )
    of_be = [rates.get(key(gpu, client), ClientRates()).gpu for slot, client in clients if slot.role == agent_pb2.BE]
    be = min(1.0, sum(share or 0.0 for share in of_be))
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(style="bold")
    table.add_column(ratio=1)
    table.add_column(justify="right", no_wrap=True)
    memory = used / gpu.memory_bytes if gpu.memory_bytes else 0.0
    table.add_row("memory", _bar(memory, console), f"{format_size(used)} of {format_size(gpu.memory_bytes)}")
    table.add_row("hp busy", _bar(gpu.hp_busy_ratio, console), f"{gpu.hp_busy_ratio:.0%}")
    table.add_row("be gpu", _bar(be, console), f"{be:.0%}" if any(share is not None for share in of_be) else "")
    table.add_row("policy", Text(_policy(gpu)), "")
    return table


def _bar(share: float, console: Console) -> RenderableType:
    share = min(1.0, max(0.0, share))
    colour = "green" if share < 0.5 else "yellow" if share < 0.8 else "red"
    if console.encoding.startswith("utf"):
        return Bar(1.0, 0.0, share, color=colour, bgcolor="grey19" if console.color_system else "default")
    return ProgressBar(1.0, share, complete_style=colour, finished_style=colour)


def _policy(gpu: agent_pb2.Gpu) -> str:
    """Return the GPU's policy, and the settings that differ from the default."""
    parts = [gpu.policy, f"window {gpu.window_us} us"]
    slowdown, request = gpu.settings.fields["max_slowdown"], gpu.settings.fields.get("request", 1.0)
    if gpu.policy == "orion" and slowdown > 1:
        parts.append(f"max slowdown {slowdown:g}")
    if request < 1:
        parts.append(f"hp request {request:g}")
    return ", ".join(parts)


def _clients(gpu: agent_pb2.Gpu, rates: Mapping[Key, ClientRates], wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0), expand=True)
    for name in ("slot", "process"):
        table.add_column(name, no_wrap=True)
    table.add_column("command", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("state", no_wrap=True)
    for name in ("launches/s", "gated", "gpu", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    for slot in _in_order(gpu):
        for client in slot.clients:
            table.add_row(*_row(slot, client, rates.get(key(gpu, client), ClientRates()), wide))
        if not slot.clients:
            table.add_row(slot.name, "", "", "empty", style=_EMPTY)
    return table


def _in_order(gpu: agent_pb2.Gpu) -> list[agent_pb2.Slot]:
    """Return the slots, those of hp first."""
    return sorted(gpu.slots, key=lambda slot: (slot.role != agent_pb2.HP, slot.name))


def _row(slot: agent_pb2.Slot, client: agent_pb2.Client, rates: ClientRates, wide: bool) -> list[Text]:
    state = "held" if slot.held and client.state == "gated" else client.state
    if slot.role == agent_pb2.BE:
        gated, used = _percent(rates.gated), _percent(rates.gpu)
    else:
        gated, used = "", f"x{min(client.slowdown, 999):.2f}" if client.slowdown else ""
    memory = format_size(client.memory_bytes)
    if slot.memory_limit_bytes:
        memory += f" of {format_size(slot.memory_limit_bytes)}"
    cells = [slot.name, str(client.process_id), client.command, state]
    cells += ["" if rates.launches is None else f"{rates.launches:,.0f}", gated, used]
    cells += [memory if wide else memory.replace(" of ", "/").replace(" ", "").replace("iB", "")]
    texts = [Text(cell) for cell in cells]
    texts[3].stylize(_STATES.get(state, ""))
    return texts


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _sentences(gpu: agent_pb2.Gpu) -> list[str]:
    """Return the warnings about the GPU, then about its clients."""
    found = [condition.message for condition in gpu.conditions]
    for slot in gpu.slots:
        found += [
            f"{slot.name}, process {each.process_id}: {each.condition}" for each in slot.clients if each.condition
        ]
    return found
