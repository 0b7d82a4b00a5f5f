"""The pages that clients write and the agent reads.

Clients may write anything into their pages: every reader here accepts any bit pattern and returns plain, unsigned
numbers.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from orion.hook import layout
from orion.node_agent.pages.busy_periods import BusyPeriods, PeriodWords
from orion.node_agent.pages.page_header import header
from orion.node_agent.pages.parking_words import ParkingAnswer

_PLACE = struct.Struct("<II")
_MIB_MAX = 2**31
_LOW = 2**32 - 1


def printable(raw: bytes, limit: int) -> str:
    """Return a tenant's bytes as printable ASCII, safe for logs, tables and labels."""
    text = raw.split(b"\0", 1)[0][:limit].decode("ascii", "replace")
    return "".join(character if " " <= character <= "~" else "?" for character in text)


class BusyPage:
    """A client's busy page: whether the client is busy and alive."""

    _state: ClassVar[int] = layout.offset(layout.BusyPage, "state") // 4
    _alive: ClassVar[int] = layout.offset(layout.BusyPage, "alive") // 4
    _progress: ClassVar[int] = layout.offset(layout.BusyPage, "progress") // 8

    def __init__(self, memory: memoryview) -> None:
        self._words, self._longs = memory.cast("I"), memory.cast("Q")

    @property
    def state(self) -> layout.BusyState:
        """The state. An undefined value counts as busy; be clients read it in the same way."""
        value = self._words[self._state]
        return layout.BusyState(value) if value <= layout.BusyState.LINGER else layout.BusyState.BUSY

    @property
    def progress(self) -> int:
        """Grows when the client finds out that work is complete."""
        return self._longs[self._progress]

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


_AWAY = frozenset({layout.ParkingState.LEAVING, layout.ParkingState.PARKED, layout.ParkingState.RETURNING})


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
    _periods: ClassVar[int] = layout.offset(layout.RecordPage, "busy_periods") // 8
    _ring: ClassVar[int] = layout.offset(layout.RecordPage, "period") // 8
    _ring_end: ClassVar[int] = _ring + 2 * layout.BUSY_PERIODS
    _linger: ClassVar[int] = layout.offset(layout.RecordPage, "linger_ns") // 8
    _gpu: ClassVar[int] = layout.offset(layout.RecordPage, "gpu_ns") // 8
    _shares: ClassVar[int] = layout.offset(layout.RecordPage, "shares_context") // 8
    _last: ClassVar[int] = layout.offset(layout.RecordPage, LATER_RECORD_FIELDS[-1]) // 8
    _counted: ClassVar[int] = layout.offset(layout.RecordPage, "launches_counted_ns") // 8
    _ran_on: ClassVar[int] = layout.offset(layout.RecordPage, "ran_on_ns") // 8
    _piece: ClassVar[int] = layout.offset(layout.RecordPage, "piece_ns") // 8
    _fault: ClassVar[int] = layout.offset(layout.RecordPage, "fault") // 8
    _memory: ClassVar[int] = layout.offset(layout.RecordPage, "memory_bytes") // 8
    _least: ClassVar[int] = layout.offset(layout.RecordPage, "memory_least") // 8
    _most: ClassVar[int] = layout.offset(layout.RecordPage, "memory_most") // 8
    _has_pools: ClassVar[int] = layout.offset(layout.RecordPage, "has_pools") // 8
    _taken: ClassVar[int] = layout.offset(layout.RecordPage, "memory_taken") // 8
    _epoch: ClassVar[int] = layout.offset(layout.RecordPage, "credit_epoch") // 8
    _parking: ClassVar[int] = layout.offset(layout.RecordPage, "parking") // 8
    _parking_since: ClassVar[int] = layout.offset(layout.RecordPage, "parking_since_ns") // 8
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
    def said(self) -> bytes:
        """What changes when the client launches, waits, works, allocates or answers; not the time of its last count."""
        words, counted = self._words, self._counted
        return words[self._launches : counted].tobytes() + words[counted + 1 : self._parking_since + 1].tobytes()

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
        """Whether a launch waits for its turn, or be work is in flight."""
        if self._words[self._in_flight]:
            return True
        # Launches of a client that is not in the GPU's memory wait until it is back.
        return bool(self._words[self._waiting_since]) and self._words[self._parking] & 0xFF not in _AWAY

    @property
    def gpu_ns(self) -> int:
        """Measured time on the GPU of all be work that has completed, in nanoseconds."""
        return self._words[self._gpu]

    @property
    def ran_on_ns(self) -> int:
        """How much of `gpu_ns` ran after turns of the client's slot, in nanoseconds."""
        return self._words[self._ran_on]

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
    def taken_mib(self) -> int | None:
        """What of it the client has surely taken, in MiB, rounded up; None: an earlier hook does not say.

        The driver may be asked for the rest at any moment.
        """
        word = self._words[self._taken]
        return min(-(-(word & ~layout.MEMORY_TAKEN) >> 20), _MIB_MAX) if word & layout.MEMORY_TAKEN else None

    def memory_since_mib(self, question: int) -> tuple[int, int]:
        """Return the least and the most that the client has held since a question to the driver, as far as it says."""
        now, least, most = self.memory_mib, self._words[self._least], self._words[self._most]
        if not least >> 32 == most >> 32 == question:
            least = most = now
        return 0 if self._words[self._has_pools] else min(now, least & _LOW), max(now, most & _LOW)

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
    def fault(self) -> int:
        """The CUDA error with which the client lost its context; 0: it has its context."""
        return self._words[self._fault]

    def busy_ns(self, now_ns: int) -> int:
        """Return the time spent busy, including an open busy period."""
        since = self._words[self._busy_since]
        return self._words[self._busy] + (now_ns - since if 0 < since < now_ns else 0)

    @property
    def linger_ns(self) -> int:
        """How long the client lingers at present, as it says."""
        return self._words[self._linger]

    def busy_periods(self, since_ns: int, now_ns: int, most: int) -> BusyPeriods:
        """Return when the client was busy between two times; read at most ``most`` closed periods."""
        words = self._words
        open_ns, count = words[self._busy_since], words[self._periods]
        ring = words[self._ring : self._ring_end].tolist()
        return PeriodWords(open_ns, count, ring, words[self._periods]).between(since_ns, now_ns, most)

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
