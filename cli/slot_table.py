"""The table of slots for `orion top` and `orion explain slot`: what each asks for, was due and used."""

from rich.table import Table
from rich.text import Text

from orion.node_agent.api import agent_pb2

_COLUMNS = ("request", "limit", "due", "charged", "measured", "waited", "debt")


def slot_table(gpu: agent_pb2.Gpu, slots: list[agent_pb2.Slot], recent: bool = False) -> Table:
    """Return a row for each slot.

    Args:
        gpu: the GPU of the slots.
        slots: the slots to show.
        recent: the parts of about the last 10 s; else those of about the last second.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=not recent)
    table.add_column("slot", no_wrap=True, overflow="ellipsis", ratio=1)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    for slot in slots:
        table.add_row(*map(Text, _row(gpu, slot, recent)))
    return table


def _row(gpu: agent_pb2.Gpu, slot: agent_pb2.Slot, recent: bool) -> list[str]:
    is_hp, parts = slot.role == agent_pb2.HP, slot.usage.recent if recent else slot.usage.second
    request = gpu.settings.fields.get("request", 1.0) if is_hp else slot.request
    figures = (parts.due, parts.charged, parts.measured, parts.waited)
    shown = [f"{each:.3f}" if parts.seconds else "" for each in figures]
    debt = "" if is_hp else f"{slot.usage.debt_seconds:.2f} s"
    return [slot.name, f"{request:g}" if request else "-", f"{slot.limit:g}" if slot.limit else "-", *shown, debt]
