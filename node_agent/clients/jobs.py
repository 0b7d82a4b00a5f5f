"""Jobs: the be clients that belong together although they are several processes, such as the ranks of `torchrun`.

A collective runs until its peers run, so it must begin on all GPUs of its job or on none (hook/src/be/collective.h).
The agent knows which clients belong together, because it knows for whom each slot was made: a pod, or the process that
`orion run` has become. No client can claim to belong to a job. When processes of one job use two GPUs, the agent makes
the job's page and sends it to them. It sends the page before the message that makes the client managed, so a client has
the page before its first launch.

The page outlives the agent. The state file names the page and the rank of each client. The first client that returns
to the next agent brings the page, and that agent takes it over. Until all clients that had a page have returned, or
their time is over, the next agent makes no page of its own: a job must not get a second page.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orion.hook import layout
from orion.node_agent.clients import messages
from orion.node_agent.clients.client import Client, ClientKey, JobPlace
from orion.node_agent.pages.job_page import JobPage
from orion.node_agent.state.state_file import RememberedClient

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
    """The jobs of all GPUs of an agent.

    Args:
        save: writes the state file; called before the agent sends a client its rank.
    """

    def __init__(self, save: Callable[[], None]) -> None:
        self._save = save
        self._jobs: dict[str, _Job] = {}
        self._of: dict[Client, str] = {}
        self._awaited: dict[tuple[str, ClientKey], JobPlace] = {}
        """ Clients of the previous agent that had a page and are not in their job yet. """

    def await_return(self, gpu: str, remembered: Iterable[RememberedClient]) -> None:
        """Keep the ranks of a GPU's clients that an earlier agent knew."""
        self._awaited |= {(gpu, each.key): each.job for each in remembered if each.job is not None}

    def stop_awaiting(self) -> None:
        """Free the ranks of clients that did not return, and make the pages that were not made until now."""
        gone, self._awaited = self._awaited, {}
        for identity, rank in gone.values():
            for job in self._jobs.values():
                if job.page is not None and job.page.identity == identity:
                    job.page.free_rank(rank)
        for name, job in self._jobs.items():
            self._send(name, job)

    def joined(self, client: Client) -> None:
        """Add a client that is ready, and send the job's page to all of its clients that lack it."""
        name = client.slot.job
        if client.role is not layout.Role.BE or not name or self._of.get(client) == name:
            return
        self.left(client)
        job = self._jobs.setdefault(name, _Job())
        job.clients.append(client)
        self._of[client] = name
        place = self._awaited.pop((client.slot.gpu, client.key), None)
        if client.job_descriptor >= 0:
            self._take_over(job, client)
        elif place is not None and job.page is not None and job.page.identity == place[0]:
            job.page.free_rank(place[1])  # it did not bring the page, so it gets the page and a rank again
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

    def spans_gpus(self, name: str) -> bool:
        """Return whether the clients of a job use several GPUs."""
        job = self._jobs.get(name)
        return job is not None and len({client.slot.gpu for client in job.clients}) > 1

    def close(self) -> None:
        """Close all pages; clients that have them continue to use them."""
        for job in self._jobs.values():
            if job.page is not None:
                job.page.close()
        self._jobs.clear()
        self._of.clear()

    def _take_over(self, job: _Job, client: Client) -> None:
        """Use the page that a returning client has brought, unless its job has another one."""
        assert client.job is not None
        identity, rank = client.job
        if job.page is None:
            kept = [place[1] for place in self._awaited.values() if place[0] == identity]
            with contextlib.suppress(OSError):  # it cannot be written: another client may bring it
                job.page = JobPage(os.dup(client.job_descriptor), [rank, *kept])
        if job.page is not None and job.page.identity == identity and rank not in job.ranks.values():
            job.page.keep_rank(rank)
            job.ranks[client] = rank
        client.close_job()

    def _send(self, name: str, job: _Job) -> None:
        if job.page is None and not (job.needs_page and not self._awaited):
            return
        try:
            job.page = job.page or JobPage.new()
        except OSError as error:
            # Each rank then waits for its own GPU's hp alone. The next client that joins causes another attempt.
            self._complain(job, f"{name} gets no page, so its collectives do not stop together: {error}")
            return
        lacking = [client for client in job.clients if client not in job.ranks]
        for client in lacking:
            rank = job.page.take_rank()
            if rank is None:
                self._complain(job, f"{name} has over {layout.RANKS_MAX} clients; the rest wait alone")
                break
            job.ranks[client] = rank
            client.place(job.page.identity, rank)
        given = [client for client in lacking if client in job.ranks]
        if given:
            self._save()
        for client in given:
            client.connection.send(messages.job(job.ranks[client]), [job.page.descriptor])

    @staticmethod
    def _complain(job: _Job, sentence: str) -> None:
        if not job.complained:
            job.complained = True
            _log.warning("job: %s", sentence)
