"""Seating a new client: its place and its two pages."""

import os

from orion.hook import layout
from orion.node_agent import descriptors, pages
from orion.node_agent.boards import Board
from orion.node_agent.clients import Client
from orion.node_agent.connections import Connection
from orion.node_agent.slots import Slot


def seat(board: Board, slot: Slot, connection: Connection, command: str) -> Client:
    """Put a client on the board, with pages that it can still write.

    Raises:
        BoardFull: no place is left for the slot.
        OSError: no descriptors or no memory are left.
    """
    place, generation = board.seat(slot)
    uuid = board.gpu.uuid
    owned: list[int] = []
    try:
        busy, busy_to_read = _page("orion-busy", pages.header(layout.PageKind.BUSY, uuid), owned)
        record, record_to_read = _page("orion-record", pages.RecordPage.begin(uuid, place, generation), owned)
        client = Client(
            slot=slot,
            seat=(place, generation),
            process_id=connection.process_id,
            command=command,
            busy_id=descriptors.identity(busy),
            record_id=descriptors.identity(record),
            busy=pages.BusyPage(descriptors.map_to_read(busy_to_read)),
            record=pages.RecordPage(descriptors.map_to_read(record_to_read)),
            connection=connection,
            busy_descriptor=busy_to_read,
            writable=[busy, record],
        )
    except BaseException:
        descriptors.close(owned)
        board.unseat(slot.name, place)
        raise
    descriptors.close([record_to_read])
    board.add(client)
    return client


def _page(name: str, beginning: bytes, owned: list[int]) -> tuple[int, int]:
    """Make a page that begins with ``beginning``; note its descriptors in ``owned``."""
    writable, readable = descriptors.new_page(name)
    owned += [writable, readable]
    os.pwrite(writable, beginning, 0)
    return writable, readable
