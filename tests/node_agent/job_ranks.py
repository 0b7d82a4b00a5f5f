"""Clients that may be ranks of a job, and the job's page as each of them sees it."""

import contextlib
import os
from ctypes import sizeof
from pathlib import Path

from orion.hook import layout
from tests.node_agent.protocol_client import Page, ProtocolClient, connect_as_another_process
from tests.waiting import DEADLINE

TIED = layout.offset(layout.JobPage, "rank")
""" The offset of the first rank's first word. """


def rank(stack: contextlib.ExitStack, directory: Path) -> ProtocolClient:
    return stack.enter_context(ProtocolClient(directory, connect_as_another_process).join())


def same_memory(one: Page, other: Page) -> bool:
    return os.fstat(one.fd).st_ino == os.fstat(other.fd).st_ino


def receives_no_job(client: ProtocolClient) -> bool:
    client.sock.settimeout(0.2)
    before = len(client.jobs)
    with contextlib.suppress(TimeoutError):
        while True:
            client.receive_message()
    client.sock.settimeout(DEADLINE)  # what is received later may take longer
    return len(client.jobs) == before


def words_of(page: Page, rank: int) -> memoryview:
    begin = TIED + rank * sizeof(layout.Rank)
    return memoryview(page.memory)[begin : begin + sizeof(layout.Rank)]
