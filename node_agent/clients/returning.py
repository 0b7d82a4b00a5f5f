"""Takes back a client of the previous agent, by the pages that it sends.

The state file names the two pages of each client index by device and inode. The process that sends these two pages
through the slot's socket is the client. Another process that has these pages is in the same slot, and gains nothing.
The pages must be sealed: a client could shrink an unsealed page, and readers of the page would then fault.

A be client also brings the page of its job, if it has one, so that the agent can take this page over (`jobs`).
"""

import errno
import os

from orion.errors import Conflict, Exhausted
from orion.hook import layout
from orion.node_agent.clients.client import Client
from orion.node_agent.clients.connections import Connection
from orion.node_agent.pages import client_pages, descriptors
from orion.node_agent.slots.slot import Slot
from orion.node_agent.state.state_file import RememberedClient

_LACKS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def as_remembered(client: Client) -> RememberedClient:
    """Return a living client in the form of the state file."""
    return RememberedClient.model_validate_json(client.text)


def take_back(slot: Slot, connection: Connection, remembered: RememberedClient, fds: list[int]) -> Client:
    """Make a client from the remembered values and its pages ``fds``: busy, record, perhaps job.

    The caller keeps ``fds``.

    Raises:
        Conflict: the first two descriptors are not the client's pages, complete and sealed.
        Exhausted: the system lacks descriptors or memory for now.
    """
    if len(fds) not in (2, 3):
        raise Conflict("a returning client brings two pages, busy and record, and perhaps the page of its job")
    readable: list[int] = []
    try:
        for descriptor, expected in zip(fds[:2], (remembered.busy, remembered.record), strict=True):
            _check(descriptor, expected)
            readable.append(_to_read(descriptor))
        client = Client(
            slot=slot,
            key=remembered.key,
            process_id=connection.process_id,
            command=remembered.command,
            busy_id=remembered.busy,
            record_id=remembered.record,
            busy=client_pages.BusyPage(descriptors.map_to_read(readable[0])),
            record=client_pages.RecordPage(descriptors.map_to_read(readable[1])),
            connection=connection,
            job=remembered.job,
            left_mib=remembered.left_mib,
        )
        client.job_descriptor = _job_page(remembered, fds)
    except OSError as error:
        descriptors.close(readable)
        kind = Exhausted if error.errno in _LACKS else Conflict
        raise kind(f"the pages cannot be used: {error.strerror}") from None
    except Conflict:
        descriptors.close(readable)
        raise
    if slot.role is layout.Role.HP:
        client.busy_descriptor = readable.pop(0)
    descriptors.close(readable)
    client.ready = True
    # Start from the current counters, so that earlier work is not counted again.
    client.last_launches = client.record.launches
    client.last_busy_ns = client.record.busy_ns(client.joined_ns)
    client.last_gpu_ns = client.record.gpu_ns
    client.last_ran_on_ns = client.record.ran_on_ns
    client.last_waited_ns = client.record.waited_ns(client.joined_ns)
    return client


def go_on(client: Client, before: Client | None) -> None:
    """Let a client that returns go on with what this agent knows of it; None: it comes from an earlier agent."""
    if before is None:
        client.returned = client.awaits_driver = client.is_listed = True
        return
    client.stale = before.sent | before.stale
    client.returned, client.joined_ns = before.returned, before.joined_ns
    client.awaits_driver, client.stays = before.awaits_driver, before.stays
    client.uncounted_mib, client.last_uncounted_mib = before.uncounted_mib, before.last_uncounted_mib
    client.is_listed, client.listed_mib = before.is_listed, before.listed_mib
    client.before_lowering = before.before_lowering


def _job_page(remembered: RememberedClient, fds: list[int]) -> int:
    """Return a descriptor of the page of the client's job; -1: the client has not brought that page."""
    if remembered.job is None or len(fds) != 3:
        return -1
    if descriptors.seals(fds[2]) != descriptors.SEALS_OF_SIZE | descriptors.SEAL_SEAL:
        return -1
    is_page = descriptors.identity(fds[2]) == remembered.job[0] and os.fstat(fds[2]).st_size == layout.PAGE_SIZE
    return os.dup(fds[2]) if is_page else -1


def _to_read(descriptor: int) -> int:
    """Return a descriptor of a sealed page, for the agent and for the client's neighbours.

    The page's file mode may forbid reading, because root can change the mode through any descriptor of the page, even
    in another container. In this case the agent uses the descriptor that the client sent. The seals prevent writes
    through this descriptor.
    """
    try:
        return descriptors.reopen_to_read(descriptor)
    except PermissionError:
        return os.dup(descriptor)


def _check(descriptor: int, expected: tuple[int, int]) -> None:
    seals = descriptors.seals(descriptor)
    # Check the seals first: the calls below are safe only on a file in memory.
    if seals is None or seals & descriptors.SEALS_OF_SIZE != descriptors.SEALS_OF_SIZE:
        raise Conflict("a page of the returning client is not sealed memory; it may join as a new client")
    if descriptors.identity(descriptor) != tuple(expected) or os.fstat(descriptor).st_size != layout.PAGE_SIZE:
        raise Conflict("a page of the returning client is not the agent's; it may join as a new client")
    if seals & descriptors.SEALS_OF_WRITING != descriptors.SEALS_OF_WRITING:
        # The earlier agent ended between WELCOME and READY. A returning client has mapped its pages.
        descriptors.seal_against_writers(descriptor)
