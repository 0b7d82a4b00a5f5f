"""Taking back a client of an earlier agent, by the pages that it brings.

A place in the state file names two pages by device and inode. Who brings those two pages through that slot's socket is
that client; whoever else does is at least of the same slot, and gains nothing. The pages must be sealed: an
unsealed one could fault its readers.
"""

import os

from orion.hook import layout
from orion.node_agent import descriptors, pages
from orion.node_agent.clients import Client
from orion.node_agent.connections import Connection
from orion.node_agent.slots import Slot
from orion.node_agent.state import RememberedClient


class NotOurs(Exception):
    """These are not the pages that were given to this client."""


def as_remembered(client: Client) -> RememberedClient:
    """Return a living client as the state file has it."""
    return RememberedClient.model_validate_json(client.text)


def take_back(slot: Slot, connection: Connection, remembered: RememberedClient, fds: list[int]) -> Client:
    """Make a client of what was remembered and its pages ``fds`` (busy, record), which stay the caller's.

    Raises:
        NotOurs: the descriptors are not those two pages, whole and sealed.
    """
    if len(fds) != 2:
        raise NotOurs("a returning client brings two pages, busy and record")
    readable: list[int] = []
    try:
        for descriptor, expected in zip(fds, (remembered.busy, remembered.record), strict=True):
            _check(descriptor, expected)
            readable.append(_to_read(descriptor))
        client = Client(
            slot=slot,
            seat=remembered.seat,
            process_id=connection.process_id,
            command=remembered.command,
            busy_id=remembered.busy,
            record_id=remembered.record,
            busy=pages.BusyPage(descriptors.map_to_read(readable[0])),
            record=pages.RecordPage(descriptors.map_to_read(readable[1])),
            connection=connection,
        )
    except OSError as error:
        descriptors.close(readable)
        raise NotOurs(f"the pages cannot be used: {error.strerror}") from None
    except NotOurs:
        descriptors.close(readable)
        raise
    if slot.role is layout.Role.HP:
        client.busy_descriptor = readable.pop(0)
    descriptors.close(readable)
    client.ready = True
    # What it did before is not news.
    client.last_launches = client.record.launches
    client.last_busy_ns = client.record.busy_ns(client.joined_ns)
    client.last_gpu_ns = client.record.gpu_ns
    return client


def _to_read(descriptor: int) -> int:
    """Return a descriptor of a sealed page for us and its neighbours.

    The page's mode may say nobody: whoever is root and has a descriptor of it, a neighbour's too, can change that. The
    seals keep everybody from writing then, by a descriptor that would allow it too.
    """
    try:
        return descriptors.reopen_to_read(descriptor)
    except PermissionError:
        return os.dup(descriptor)


def _check(descriptor: int, expected: tuple[int, int]) -> None:
    seals = descriptors.seals(descriptor)
    # In this order: only of a file in memory is it safe to ask more.
    if seals is None or seals & descriptors.SEALS_OF_SIZE != descriptors.SEALS_OF_SIZE:
        raise NotOurs("a page that was brought is not sealed memory")
    if descriptors.identity(descriptor) != tuple(expected) or os.fstat(descriptor).st_size != layout.PAGE_SIZE:
        raise NotOurs("a page that was brought is not the one that was given")
    if seals & descriptors.SEALS_OF_WRITING != descriptors.SEALS_OF_WRITING:
        # The earlier agent ended between WELCOME and READY; who returns has mapped its pages.
        descriptors.seal_against_writers(descriptor)
