"""Jobs: the be clients that belong together although they are several processes, such as the ranks of `torchrun`.

A collective runs until its peers run, so it must begin on all GPUs of its job or on none (hook/src/be/collective.h).
The agent knows which clients belong together, because it knows for whom each slot was made: a pod, or the process that
`orion run` has become. No client can claim to belong to a job. When processes of one job use two GPUs, the agent makes
the job's page and sends it to them. It sends the page before the message that makes the client managed, so a client has
the page before its first launch.

The page belongs to the clients. The next agent does not know it. Clients that have it keep it, and clients that join
later get another one.
"""

import logging
from dataclasses import dataclass, field

from orion.hook import layout
from orion.node_agent.clients import messages
from orion.node_agent.clients.client import Client
from orion.node_agent.pages.job_page import JobPage

_log = logging.getLogger(__name__)


@dataclass
class _Job:
    """The clients of a job, and the ranks of those that have its page."""

    clients: list[Client] = field(default_factory=list)
    page: JobPage | None = None
    ranks: dict[Client, int] = field(default_factory=dict)
    complained: bool = False
    """ The agent logs one problem of a job, because a job's processes may join as often as they like. """

    @property
    def needs_page(self) -> bool:
        """Whether several processes use several GPUs. One process alone needs no page that others can write."""
        processes = {client.process_id or id(client) for client in self.clients}
        return len(processes) > 1 and len({client.slot.gpu for client in self.clients}) > 1


class Jobs:
    """The jobs of all GPUs of an agent."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._of: dict[Client, str] = {}

    def joined(self, client: Client) -> None:
        """Add a client that is ready, and send the job's page to all of its clients that lack it."""
        name = client.slot.job
        if client.role is not layout.Role.BE or not name or self._of.get(client) == name:
            return
        self.left(client)
        job = self._jobs.setdefault(name, _Job())
        job.clients.append(client)
        self._of[client] = name
        if job.page is not None or job.needs_page:
            self._send(name, job)

    def left(self, client: Client) -> None:
        """Remove a client; its peers no longer wait for it."""
        name = self._of.pop(client, None)
        if name is None:
            return
        job = self._jobs[name]
        job.clients.remove(client)
        rank = job.ranks.pop(client, None)
        if job.page is not None and rank is not None:
            job.page.free_rank(rank)
        if not job.clients:
            del self._jobs[name]
            if job.page is not None:
                job.page.close()

    def close(self) -> None:
        """Close all pages; clients that have them continue to use them."""
        for job in self._jobs.values():
            if job.page is not None:
                job.page.close()
        self._jobs.clear()
        self._of.clear()

    def _send(self, name: str, job: _Job) -> None:
        try:
            job.page = job.page or JobPage()
        except OSError as error:
            # Each rank then waits for its own GPU's hp alone. The next client that joins causes another attempt.
            self._complain(job, f"{name} gets no page, so its collectives do not stop together: {error}")
            return
        for client in job.clients:
            if client in job.ranks:
                continue
            rank = job.page.take_rank()
            if rank is None:
                self._complain(job, f"{name} has over {layout.RANKS_MAX} clients; the rest wait alone")
                return
            job.ranks[client] = rank
            client.connection.send(messages.job(rank), [job.page.descriptor])

    @staticmethod
    def _complain(job: _Job, sentence: str) -> None:
        if not job.complained:
            job.complained = True
            _log.warning("job: %s", sentence)
