"""Makes a new client: its index in the GPU's client table and its two pages."""

import os

from orion.hook import layout
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.connections import Connection
from orion.node_agent.clients.shared_gpu import SharedGpu
from orion.node_agent.pages import descriptors
from orion.node_agent.pages.client_pages import BusyPage, RecordPage
from orion.node_agent.pages.page_header import header
from orion.node_agent.slots.slot import Slot


def make(shared_gpu: SharedGpu, slot: Slot, connection: Connection, command: str) -> Client:
    """Add a client to the GPU. The client can write its pages until they are sealed.

    Raises:
        Exhausted: no client index is free for the slot.
        OSError: the system has no more descriptors or memory.
    """
    client_index, generation = shared_gpu.take_index(slot)
    uuid = shared_gpu.gpu.uuid
    owned: list[int] = []
    try:
        busy, busy_to_read = _page("orion-busy", header(layout.PageKind.BUSY, uuid), owned)
        record, record_to_read = _page("orion-record", RecordPage.begin(uuid, client_index, generation), owned)
        client = Client(
            slot=slot,
            key=(client_index, generation),
            process_id=connection.process_id,
            command=command,
            busy_id=descriptors.identity(busy),
            record_id=descriptors.identity(record),
            busy=BusyPage(descriptors.map_to_read(busy_to_read)),
            record=RecordPage(descriptors.map_to_read(record_to_read)),
            connection=connection,
            busy_descriptor=busy_to_read,
            writable=[busy, record],
        )
    except BaseException:
        descriptors.close(owned)
        shared_gpu.free_index(slot.name, client_index)
        raise
    descriptors.close([record_to_read])
    shared_gpu.add(client)
    return client


def _page(name: str, beginning: bytes, owned: list[int]) -> tuple[int, int]:
    """Make a page that begins with ``beginning``; append its descriptors to ``owned``."""
    writable, readable = descriptors.new_page(name)
    owned += [writable, readable]
    os.pwrite(writable, beginning, 0)
    return writable, readable
