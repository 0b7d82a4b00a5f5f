"""The pages: the agent writes its own pages and reads its clients' pages.

The agent writes policy and grant pages. Each has two copies. The agent writes the copy that is not current, then
changes `current`, so a reader always finds a complete copy without a lock. Words outside the copies are stored through
a cast view, which makes one store of the word's width.

Clients may write anything into their pages: every reader here accepts any bit pattern and returns plain, unsigned
numbers.
"""

import secrets
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

from orion.hook import layout
from orion.node_agent.pages import descriptors, futex
from orion.node_agent.pages.parking_words import ParkingAnswer
from orion.node_agent.pages.plans import Plan
from orion.node_agent.pages.policy_words import Policy

_HEADER = struct.Struct("<QII48s")
_GRANT = struct.Struct("<QII2Q4I2I7Q2IQ")
_PLACE = struct.Struct("<II")
_NO_PLAN = (0,) * 6
_MIB_MAX, _WORD_MAX = 2**31, 2**32 - 1


_fence_lock = threading.Lock()


def printable(raw: bytes, limit: int) -> str:
    """Return a tenant's bytes as printable ASCII, safe for logs, tables and labels."""
    text = raw.split(b"\0", 1)[0][:limit].decode("ascii", "replace")
    return "".join(character if " " <= character <= "~" else "?" for character in text)


def _fence() -> None:
    """Order the stores before this call before the stores and loads after it.

    Releasing a lock and acquiring it again keeps the order: a store cannot move down past the release, nor a load or
    store up past the acquisition, which is an atomic exchange.
    """
    for _ in range(2):
        with _fence_lock:
            pass


def header(kind: layout.PageKind, gpu: str) -> bytes:
    """Return the header that every page begins with."""
    return _HEADER.pack(layout.PAGE_MAGIC, layout.LAYOUT_NEWEST, kind, gpu.encode("ascii")[:47])


class Grant(NamedTuple):
    """What the clients of a slot may do; times in nanoseconds, memory in bytes (0: no limit).

    A tuple, as Plan, because early ends of turns change them often, and a frozen dataclass takes five times as long.
    """

    role: layout.Role
    window_share_ns: int
    memory_limit_bytes: int
    request_milli: int = 0
    """ The part of the GPU's time that the slot is sure to get, in thousandths; 0: none. """
    limit_milli: int = 0
    """ The most of the GPU's time that the slot may use, in thousandths; 0: no limit. """
    plan: Plan | None = None
    """ be: its turns; None: the slot waits for no other slot. """
    memory_wait_ns: int = 0
    """ How long an allocation waits for others to leave a full GPU. """
    parks: bool = False
    """ be: the agent may ask the slot's processes to leave the GPU's memory. """
    unified: layout.Unified = layout.Unified.NONE
    """ be: whether device allocations become managed memory. """
    memory_request_bytes: int = 0
    """ unified: the most of each process that is not managed. """


def _grant_structure(grant: Grant, sequence: int) -> bytes:
    limits = (grant.window_share_ns, grant.memory_limit_bytes, grant.request_milli, grant.limit_milli, 0, 0)
    plan = grant.plan.words if grant.plan else _NO_PLAN
    moving = (grant.unified, 0, grant.memory_request_bytes)
    return _GRANT.pack(sequence, grant.role, grant.parks, *limits, 0, 0, *plan, grant.memory_wait_ns, *moving)


class _AgentPage:
    """A page that the agent writes and clients read; `descriptor` is read-only, for clients."""

    kind: ClassVar[layout.PageKind]
    current_offset: ClassVar[int]
    copy_offset: ClassVar[int]
    copy_size: ClassVar[int]

    def __init__(self, gpu: str) -> None:
        writable, self.descriptor = descriptors.new_page(f"orion-{self.kind.name.lower()}")
        try:
            self._memory = descriptors.map_to_write(writable)
            descriptors.seal_against_writers(writable)
        finally:
            descriptors.close([writable])
        self._words = self._memory.cast("I")
        self._sequence = 0
        first = header(self.kind, gpu)
        self._memory[: len(first)] = first

    def _publish(self, structure: Callable[[int], bytes]) -> None:
        """Write the copy that is not current, then make this copy current.

        `structure` gets the new sequence number.
        """
        self._sequence += 1
        other = 1 - (self._words[self.current_offset // 4] & 1)
        copy, begin = structure(self._sequence), self.copy_offset + other * self.copy_size
        self._memory[begin : begin + len(copy)] = copy
        _fence()
        self._words[self.current_offset // 4] = other

    def close(self) -> None:
        """Close the descriptor; the memory exists as long as a client maps it."""
        descriptors.close([self.descriptor])


class PolicyPage(_AgentPage):
    """The policy of one GPU, how many clients of each role it has, and which hp clients are stopped."""

    kind = layout.PageKind.POLICY
    current_offset = layout.offset(layout.PolicyPage, "current")
    copy_offset = layout.offset(layout.PolicyPage, "copy")
    copy_size = layout.PolicyPage.copy.size // 2

    _hp_clients: ClassVar[int] = layout.offset(layout.PolicyPage, "hp_clients") // 4
    _be_clients: ClassVar[int] = layout.offset(layout.PolicyPage, "be_clients") // 4
    _stopped: ClassVar[int] = layout.offset(layout.PolicyPage, "stopped") // 4

    def write(self, policy: Policy) -> None:
        """Make ``policy`` the current one."""
        self._publish(policy.structure)

    def count(self, hp_clients: int, be_clients: int) -> None:
        """Write how many clients of each role live on the GPU."""
        self._words[self._hp_clients] = hp_clients
        self._words[self._be_clients] = be_clients

    def stopped(self, index: int) -> int:
        """Return the generation marked as stopped at a client index; 0: none."""
        return self._words[self._stopped + index]

    def mark_stopped(self, index: int, generation: int) -> None:
        """Mark the client of that generation as stopped; generation 0 removes the mark."""
        self._words[self._stopped + index] = generation


class GrantPage(_AgentPage):
    """What one slot may do."""

    kind = layout.PageKind.GRANT
    current_offset = layout.offset(layout.GrantPage, "current")
    copy_offset = layout.offset(layout.GrantPage, "copy")
    copy_size = layout.GrantPage.copy.size // 2

    _plan: ClassVar[int] = layout.offset(layout.GrantPage, "plan")
    _epoch: ClassVar[int] = layout.offset(layout.GrantPage, "credit_epoch") // 4
    _used: ClassVar[int] = layout.offset(layout.GrantPage, "used_mib") // 4
    _park: ClassVar[int] = layout.offset(layout.GrantPage, "park") // 4
    _leaving: ClassVar[int] = layout.offset(layout.GrantPage, "leaving_mib") // 4
    _returning: ClassVar[int] = layout.offset(layout.GrantPage, "returning_mib") // 4
    _credit: ClassVar[int] = layout.offset(layout.GrantPage, "credit_mib") // 4

    def __init__(self, gpu: str) -> None:
        super().__init__(gpu)
        self.epoch = secrets.randbits(31) + 1
        """ Tells this page's credits from those of an earlier agent's page. """
        self._words[self._epoch] = self.epoch

    def write(self, grant: Grant) -> None:
        """Make ``grant`` the current one."""
        self._publish(partial(_grant_structure, grant))

    def credit(self, index: int) -> int:
        """Return how much memory the client of that index may hold, in MiB."""
        return self._words[self._credit + index]

    def set_credit(self, index: int, mib: int) -> None:
        """Change a client's credit. What the client holds is to be read after this, not before."""
        self._words[self._credit + index] = max(0, min(mib, _WORD_MAX))
        _fence()

    def set_used(self, mib: int) -> None:
        """Write what the slot's processes hold together."""
        self._words[self._used] = min(mib, _WORD_MAX)

    @property
    def park(self) -> int:
        """The number of the last wish; odd: the slot's processes shall leave the GPU's memory."""
        return self._words[self._park]

    def set_park(self, number: int) -> None:
        """Write the number of a wish."""
        self._words[self._park] = number & _WORD_MAX

    def set_leaving(self, mib: int) -> None:
        """Write how much of what is not free on the GPU others would leave to an hp slot."""
        self._words[self._leaving] = max(0, min(mib, _WORD_MAX))

    def set_returning(self, mib: int) -> None:
        """Write how much of what is free others have been let back into; an hp slot asks before it takes any."""
        self._words[self._returning] = max(0, min(mib, _WORD_MAX))

    def announce_plan(self) -> None:
        """Wake the clients that wait for their turn: the plan has changed."""
        self._words[self._plan // 4] = (self._words[self._plan // 4] + 1) & 0xFFFFFFFF
        futex.wake_all(self._memory, self._plan)


class BusyPage:
    """A client's busy page: whether the client is busy and alive."""

    _state: ClassVar[int] = layout.offset(layout.BusyPage, "state") // 4
    _alive: ClassVar[int] = layout.offset(layout.BusyPage, "alive") // 4

    def __init__(self, memory: memoryview) -> None:
        self._words = memory.cast("I")

    @property
    def state(self) -> layout.BusyState:
        """The state. An undefined value counts as busy; be clients read it in the same way."""
        value = self._words[self._state]
        return layout.BusyState(value) if value <= layout.BusyState.LINGER else layout.BusyState.BUSY

    @property
    def owner_died(self) -> bool:
        """Whether the kernel has marked the robust futex of the client's thread: the client has died."""
        return bool(self._words[self._alive] & layout.FUTEX_OWNER_DIED)


RECORD_FIELDS = (
    "launches", "gated_launches", "gated_ns", "window_waits", "window_wait_ns", "waiting_since_ns", "in_flight_ns",
    "window_share_ns", "samples", "kernels_known", "busy_ns", "busy_periods", "busy_since_ns", "linger_ns",
    "memory_bytes", "memory_refusals", "given_up", "unknown_functions",
)  # fmt: skip
LATER_RECORD_FIELDS = (
    "gpu_ns", "overlapped_launches", "overlapped_ns", "partitioned_launches", "slowdown_milli", "overlap_ns",
    "control_periods", "shares_context", "long_kernel_ns",
)  # fmt: skip
""" The fields that follow the buckets in a record page. """


@dataclass(frozen=True)
class Record:
    """All fields of a record page, as `RecordPage.read` found them; see `struct orion_record_page`."""

    wait_bucket: tuple[int, ...]
    long_kernel_name: str
    """ Printable ASCII. """
    launches: int
    gated_launches: int
    gated_ns: int
    window_waits: int
    window_wait_ns: int
    waiting_since_ns: int
    in_flight_ns: int
    window_share_ns: int
    samples: int
    kernels_known: int
    busy_ns: int
    busy_periods: int
    busy_since_ns: int
    linger_ns: int
    memory_bytes: int
    memory_refusals: int
    given_up: int
    unknown_functions: int
    gpu_ns: int
    overlapped_launches: int
    overlapped_ns: int
    partitioned_launches: int
    slowdown_milli: int
    overlap_ns: int
    control_periods: int
    shares_context: int
    long_kernel_ns: int


class RecordPage:
    """A client's record page: counters of what it did."""

    _first: ClassVar[int] = layout.offset(layout.RecordPage, RECORD_FIELDS[0]) // 8
    _buckets: ClassVar[int] = layout.offset(layout.RecordPage, "wait_bucket") // 8
    _gated: ClassVar[int] = layout.offset(layout.RecordPage, "gated_ns") // 8
    _launches: ClassVar[int] = layout.offset(layout.RecordPage, "launches") // 8
    _waiting_since: ClassVar[int] = layout.offset(layout.RecordPage, "waiting_since_ns") // 8
    _in_flight: ClassVar[int] = layout.offset(layout.RecordPage, "in_flight_ns") // 8
    _busy: ClassVar[int] = layout.offset(layout.RecordPage, "busy_ns") // 8
    _busy_since: ClassVar[int] = layout.offset(layout.RecordPage, "busy_since_ns") // 8
    _gpu: ClassVar[int] = layout.offset(layout.RecordPage, "gpu_ns") // 8
    _shares: ClassVar[int] = layout.offset(layout.RecordPage, "shares_context") // 8
    _last: ClassVar[int] = layout.offset(layout.RecordPage, LATER_RECORD_FIELDS[-1]) // 8
    _counted: ClassVar[int] = layout.offset(layout.RecordPage, "launches_counted_ns") // 8
    _piece: ClassVar[int] = layout.offset(layout.RecordPage, "piece_ns") // 8
    _fault: ClassVar[int] = layout.offset(layout.RecordPage, "fault") // 8
    _memory: ClassVar[int] = layout.offset(layout.RecordPage, "memory_bytes") // 8
    _epoch: ClassVar[int] = layout.offset(layout.RecordPage, "credit_epoch") // 8
    _parking: ClassVar[int] = layout.offset(layout.RecordPage, "parking") // 8
    _parking_since: ClassVar[int] = layout.offset(layout.RecordPage, "parking_since_ns") // 8
    _parked: ClassVar[int] = layout.offset(layout.RecordPage, "parked_bytes") // 8
    _name: ClassVar[int] = layout.offset(layout.RecordPage, "long_kernel_name")
    _name_size: ClassVar[int] = layout.RecordPage.long_kernel_name.size

    def __init__(self, memory: memoryview) -> None:
        self._bytes = memory
        self._words = memory.cast("Q")

    @staticmethod
    def begin(gpu: str, place: int, generation: int) -> bytes:
        """Return what the agent writes at the start of the page before it sends the page to the client."""
        return header(layout.PageKind.RECORD, gpu) + _PLACE.pack(place, generation)

    @property
    def launches(self) -> int:
        """Number of calls that put work on the GPU."""
        return self._words[self._launches]

    @property
    def counted_ns(self) -> int:
        """When the client counted its launches (CLOCK_MONOTONIC); read this before `launches`."""
        return self._words[self._counted]

    @property
    def wants_gpu(self) -> bool:
        """Whether a launch waits at the gate, or be work is in flight."""
        return bool(self._words[self._waiting_since] or self._words[self._in_flight])

    @property
    def gpu_ns(self) -> int:
        """Measured time on the GPU of all be work that has completed, in nanoseconds."""
        return self._words[self._gpu]

    @property
    def piece_ns(self) -> int:
        """About the longest be work, lately, that no stop could interrupt, in nanoseconds."""
        return self._words[self._piece]

    @property
    def shares_context(self) -> bool:
        """Whether the client runs under MPS."""
        return self._words[self._shares] == 1

    @property
    def memory_mib(self) -> int:
        """What the client says that it holds of the device's memory, in MiB, rounded up; at most 2 PiB."""
        return min(-(-self._words[self._memory] >> 20), _MIB_MAX)

    @property
    def credit_epoch(self) -> int:
        """The epoch of the grant page whose credit the client keeps to; 0: none."""
        return self._words[self._epoch]

    @property
    def parking(self) -> ParkingAnswer:
        """What a be client answers to the wish that it leave the GPU's memory."""
        return ParkingAnswer.of(self._words[self._parking])

    def parking_since_ns(self, now_ns: int) -> int:
        """Return since when the client says that it is in that state; 0: it says no time, or one to come."""
        since = self._words[self._parking_since]
        return since if since <= now_ns else 0

    @property
    def parked_bytes(self) -> int:
        """What a be client says that it held on this GPU when it left; any number. Read `parking` before."""
        return self._words[self._parked]

    @property
    def fault(self) -> int:
        """The CUDA error with which the client lost its context; 0: it has its context."""
        return self._words[self._fault]

    def busy_ns(self, now_ns: int) -> int:
        """Return the time spent busy, including an open busy period."""
        since = self._words[self._busy_since]
        return self._words[self._busy] + (now_ns - since if 0 < since < now_ns else 0)

    def waited_ns(self, now_ns: int) -> int:
        """Return the time that launches waited, including a wait that has not ended."""
        since = self._words[self._waiting_since]
        return self._words[self._gated] + (now_ns - since if 0 < since < now_ns else 0)

    def long_kernel(self) -> tuple[int, str]:
        """Return the duration and name (printable ASCII) of the longest kernel, if it counts as long; else 0 and ""."""
        longest = self._words[self._last]
        if not longest:
            return 0, ""
        name = bytes(self._bytes[self._name : self._name + self._name_size])
        return longest, printable(name, self._name_size - 1)

    def read(self) -> Record:
        """Return all fields. Each field is consistent, but the fields are not all from the same moment."""
        words: Sequence[int] = self._words[self._first : self._last + 1].tolist()
        begin = self._buckets - self._first
        end = begin + layout.WAIT_BUCKETS
        return Record(tuple(words[begin:end]), self.long_kernel()[1], *words[:begin], *words[end:])
