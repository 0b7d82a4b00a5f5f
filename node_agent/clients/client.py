"""A client: a process that has joined a slot, as the agent knows it."""

import contextlib
import json
import time
from dataclasses import dataclass, field
from functools import cached_property

from orion.hook import layout
from orion.node_agent.clients import messages
from orion.node_agent.clients.connections import Connection
from orion.node_agent.pages import client_pages, descriptors
from orion.node_agent.processes.liveness import Program
from orion.node_agent.slots.slot import Slot

ClientKey = tuple[int, int]
""" Client index and generation. They identify a client permanently, because generations never repeat on a GPU. """

JobPlace = tuple[tuple[int, int], int]
""" Device and inode of a job's page, and a client's rank in it. """

YOUNG_NS = 3_000_000_000
""" For so long after it has joined a client makes its contexts and loads its code. """


@dataclass(eq=False)
class Client:
    """An entry of a GPU's client table, with the pages that the client's process writes.

    ``writable`` has the descriptors of the two pages until they are sealed. ``busy_descriptor`` is read-only; the
    agent keeps it for hp clients and sends it to be clients.
    """

    slot: Slot
    key: ClientKey
    process_id: int
    command: str
    busy_id: tuple[int, int]
    record_id: tuple[int, int]
    busy: client_pages.BusyPage
    record: client_pages.RecordPage
    connection: Connection
    busy_descriptor: int = -1
    job: JobPlace | None = None
    job_descriptor: int = -1
    """ The page of `job`, if the client has brought it from the previous agent and the agent has not used it yet. """
    writable: list[int] = field(default_factory=list)
    joined_ns: int = field(default_factory=time.monotonic_ns)
    ready: bool = False
    program: Program | None = None
    """ What runs in the process; None: it is not visible here. """
    keeps_credit: bool = False
    """ The hook keeps to the client's credit of memory; an earlier one has the whole limit for each process. """
    returned: bool = False
    """ The client has come back from an earlier agent, whose credit it keeps to until it has the new page. """
    awaits_driver: bool = False
    """ It has come back from an earlier agent, and the driver has not said yet what it holds. """
    wished_ns: int = 0
    """ When it first asked for credit, if the agent did not know then what contexts take; 0: it has not; -1: the driver
    has answered since. """
    uncounted_mib: int = 0
    """ What the process holds of the device beyond what its hook counts, in MiB: the driver's own memory. """
    said_mib: int = 0
    """ What the hook counted before the driver was last asked. """
    last_uncounted_mib: int | None = None
    """ The same by the driver's last answer alone; None: there was none. """
    is_listed: bool = False
    """ The driver's last answer listed the process, or may have done so when the earlier agent asked. """
    listed_mib: int = 0
    """ What the driver has listed for the process, in MiB, when it last listed anything: not while it is parked. """
    before_lowering: tuple[int, int] = 0, 0
    """ What it held within the limit before the limit was lowered, in MiB, and when (monotonic ns); 0: the driver has
    said since what it holds. """
    stays: bool = False
    """ be: it has joined since its slot was asked to leave the GPU's memory, and stays for now. """
    is_parked: bool = False
    """ be: its memory is not on the GPU, so it wants no GPU time. """
    left_mib: int | None = None
    """ be: what it held of the GPU when its tenant was last asked to leave, in MiB; None: not known. """
    park_problem: tuple[str, str] | None = None
    """ be: why it did not leave the GPU's memory, or did not come back: a reason and a sentence. """
    condition: str = ""
    sent: set[ClientKey] = field(default_factory=set)
    """ be: the hp clients whose pages the agent has sent to this client. """
    stale: set[ClientKey] = field(default_factory=set)
    """ be: hp clients that this client may know from an earlier agent. """
    last_launches: int = 0
    last_wanted_ns: int = 0
    last_busy_ns: int = 0
    last_gpu_ns: int = 0
    last_ran_on_ns: int = 0
    last_waited_ns: int = 0
    last_progress: int | None = None
    progressed_ns: int = 0
    """ hp: its progress at the last check, and since when it has been so; None: hp was idle. """
    last_said: bytes = b""
    """ Its record when `rests` was last called. """

    @property
    def role(self) -> layout.Role:
        """The role of the client's slot."""
        return self.slot.role

    @cached_property
    def text(self) -> str:
        """What the next agent needs to take the client back, as JSON (`state.RememberedClient`)."""
        client_index, generation = self.key
        return json.dumps(
            {
                "slot": self.slot.name,
                "place": client_index,
                "generation": generation,
                "process_id": self.process_id,
                "started": self.program and self.program.started,
                "command": self.command,
                "busy": self.busy_id,
                "record": self.record_id,
                "job": self.job,
                "left_mib": self.left_mib,
            }
        )

    def place(self, job_page: tuple[int, int], rank: int) -> None:
        """Note the client's rank in the page of its job."""
        self.job = job_page, rank
        self.__dict__.pop("text", None)

    def shall_leave(self) -> None:
        """Note what the client holds before it leaves the GPU's memory."""
        self.left_mib = held_mib(self)
        self.__dict__.pop("text", None)

    def seal(self) -> None:
        """Seal the pages, so that only mappings that exist can write them.

        Raises:
            OSError: the client itself has added seals that prevent this.
        """
        for descriptor in self.writable:
            descriptors.seal_against_writers(descriptor)
        descriptors.close(self.writable)
        self.writable = []
        self.ready = True
        if self.role is not layout.Role.HP:
            self._close_busy()

    def rests(self) -> bool:
        """Return whether it lives, is idle, reads its messages, and has said nothing since the last call."""
        before, self.last_said = self.last_said, self.record.said
        idle = self.busy.state is layout.BusyState.IDLE and not self.busy.owner_died
        return idle and self.ready and self.last_said == before and self.connection.stuck_since is None

    def inform(self) -> None:
        """Send the client its slot's table of kernels."""
        with contextlib.suppress(OSError):  # without the table, the client measures every kernel itself
            table = self.slot.knowledge.table()
            if table >= 0:
                self.connection.send(messages.knowledge(len(self.slot.knowledge)), [table])

    def let_stay(self, stays: bool) -> None:
        """Let the client stay although its slot shall leave, or no longer."""
        if stays != self.stays:
            self.stays = stays
            self.slot.page.set_stays(self.key[0], stays)

    def release(self) -> None:
        """Close the client's connection and descriptors."""
        self.connection.close()
        descriptors.close(self.writable)
        self.writable = []
        self._close_busy()
        self.close_job()

    def close_job(self) -> None:
        """Close the page of the job that the client has brought."""
        if self.job_descriptor >= 0:
            descriptors.close([self.job_descriptor])
            self.job_descriptor = -1

    def _close_busy(self) -> None:
        if self.busy_descriptor >= 0:
            descriptors.close([self.busy_descriptor])
            self.busy_descriptor = -1


def proven_mib(client: Client) -> int:
    """Return what a client surely holds of the device, in MiB, whatever its limit is now."""
    return max(client.listed_mib, client.before_lowering[0])


def is_going(client: Client) -> bool:
    """Return whether a client leaves its GPU or has left it; an earlier hook does so also if the agent lets it stay."""
    return client.record.parking.state in (layout.ParkingState.LEAVING, layout.ParkingState.PARKED)


def is_away(client: Client) -> bool:
    """Return whether a client's memory is not on its GPU, or not all of it: it leaves, is parked, or comes back."""
    return is_going(client) or client.record.parking.state is layout.ParkingState.RETURNING


def says_what_it_holds(client: Client) -> bool:
    """Return whether a client has written what it holds since it has its slot's page, and keeps to the credit there."""
    return not client.keeps_credit or client.record.credit_epoch == client.slot.page.epoch


def held_mib(client: Client) -> int:
    """Return what a client's process holds of the device, in MiB: what its hook counts, and the driver's own memory."""
    return client.record.memory_mib + client.uncounted_mib


def said_since_asked(client: Client) -> tuple[int, int]:
    """Return the least and the most that a client's hook has counted since the driver was last asked, in MiB."""
    least, most = client.record.memory_since_mib(client.slot.page.question)
    return min(client.said_mib, least), max(client.said_mib, most)


def is_young(client: Client) -> bool:
    """Return whether a client may still be making its contexts."""
    return time.monotonic_ns() - client.joined_ns < YOUNG_NS


def listed_held_mib(client: Client) -> int:
    """Return what a client holds of the device, in MiB, without what the driver does not confirm.

    Where the driver has not been asked since the client has made its contexts, what it says counts.
    """
    held = held_mib(client)
    return held if client.last_uncounted_mib is None or is_young(client) else min(held, client.listed_mib)
