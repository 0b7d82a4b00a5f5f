"""The shared pages as Python structures.

This module mirrors ``hook/include/orion/pages.h``, which explains every field. ``tests/hook/test_layout.py`` compiles
the headers and compares every size, offset and constant with this module. Rejected: parsing the headers at run time,
because an installed agent has no headers.

Callers read pages with ``memoryview.cast`` at the offsets of the structures, because ctypes cannot map a structure onto
read-only memory.
"""

from ctypes import LittleEndianStructure, c_char, c_uint8, c_uint32, c_uint64
from enum import IntEnum
from typing import Any

from orion.hook import policy_table
from orion.hook.policy_table import Table

LAYOUT_VERSION = 5
""" Raise this number with every change of a field's offset or meaning; hook and agent may be one version apart. """

BENCH_LAYOUTS = 0x10000
""" The library of `orion bench` adds this to the version, so it joins only the agents of `orion bench`. """

LAYOUT_OLDEST, LAYOUT_NEWEST = max(1, LAYOUT_VERSION - 1), LAYOUT_VERSION
""" The versions that this process understands. """
if policy_table.TABLE is policy_table.BENCH:
    LAYOUT_OLDEST = LAYOUT_NEWEST = BENCH_LAYOUTS + LAYOUT_VERSION

PAGE_SIZE = 4096
PAGE_MAGIC = 0x3147504E4F49524F
GPU_CLIENTS_MAX = 512
BESIDES = 192
WAIT_BUCKETS = 32
BUSY_PERIODS = 128
MEMORY_TAKEN = 1 << 63
RANKS_MAX = 31
MEETING_STREAMS = 8
FLOOR_CYCLE_MS = 200
RANK_LEASE_MS = 200

FUTEX_OWNER_DIED = 0x4000_0000
""" The kernel sets this bit in ``BusyPage.alive`` when the thread that held the futex has died (linux/futex.h). """


class PageKind(IntEnum):
    """The kind of a page."""

    POLICY = 1
    GRANT = 2
    BUSY = 3
    RECORD = 4
    JOB = 5


class Role(IntEnum):
    """The role of a client: hp or be."""

    NONE = 0
    HP = 1
    BE = 2


class Unified(IntEnum):
    """Whether device allocations of a slot become managed memory: while the GPU has room, or also beyond."""

    NONE = 0
    WITHIN = 1
    BEYOND = 2


class PolicyKind(IntEnum):
    """The policies that Python code treats specially; `policy_table` has all policies."""

    NONE = 0
    GATE = 1
    ORION = 2


class KernelClass(IntEnum):
    """What limits a kernel's speed."""

    UNKNOWN = 0
    COMPUTE = 1
    MEMORY = 2


class BusyState(IntEnum):
    """Whether an hp client has work on the GPU."""

    IDLE = 0
    BUSY = 1
    CLOSING = 2
    LINGER = 3


class ParkingState(IntEnum):
    """Whether a be client has left the GPU's memory, as the agent asked."""

    RUNNING = 0
    LEAVING = 1
    PARKED = 2
    RETURNING = 3
    REFUSED = 4
    LOST = 5


class ParkingReason(IntEnum):
    """Why a be client did not leave the GPU's memory, or did not come back."""

    NONE = 0
    NO_DRIVER = 1
    MANAGED = 2
    IMPORTED = 3
    TOGETHER = 4
    IS_HP = 5
    BUSY = 6
    CAPTURING = 7
    LOCK = 8
    CHECKPOINT = 9
    RESTORE = 10
    SLOTS = 11
    HOST = 12


class PageHeader(LittleEndianStructure):
    """The first bytes of every page."""

    _fields_ = [("magic", c_uint64), ("layout", c_uint32), ("kind", c_uint32), ("gpu", c_char * 48)]


def policy_structure(table: Table) -> type[LittleEndianStructure]:
    """Return `struct orion_policy` of the build of the library that uses this table."""
    types = {8: c_uint64, 4: c_uint32}
    fields = [(name, types[size] if count == 1 else types[size] * count) for name, size, count in table.words()]
    return type("Policy", (LittleEndianStructure,), {"_fields_": fields, "__doc__": "One complete policy."})


Policy: Any = policy_structure(policy_table.TABLE)


class PolicyPage(LittleEndianStructure):
    """A GPU's policy page. The agent writes this page, and the GPU's clients read it."""

    _fields_ = [
        ("header", PageHeader),
        ("current", c_uint32),
        ("hp_clients", c_uint32),
        ("be_clients", c_uint32),
        ("spare", c_uint32 * 13),
        ("copy", Policy * 2),
        ("unused", c_uint8 * 1664),
        ("stopped", c_uint32 * GPU_CLIENTS_MAX),
    ]


class Grant(LittleEndianStructure):
    """What a slot may do."""

    _fields_ = [
        ("sequence", c_uint64),
        ("role", c_uint32),
        ("parks", c_uint32),
        ("window_share_ns", c_uint64),
        ("memory_limit_bytes", c_uint64),
        ("compute_request_milli", c_uint32),
        ("compute_limit_milli", c_uint32),
        ("sm_share_milli", c_uint32),
        ("spare_milli", c_uint32),
        ("retired", c_uint32 * 2),
        ("turn_begin_ns", c_uint64),
        ("turn_end_ns", c_uint64),
        ("next_begin_ns", c_uint64),
        ("next_end_ns", c_uint64),
        ("cycle_ns", c_uint64),
        ("plan_until_ns", c_uint64),
        ("memory_wait_ns", c_uint64),
        ("unified", c_uint32),
        ("unused", c_uint32),
        ("memory_request_bytes", c_uint64),
    ]


class GrantPage(LittleEndianStructure):
    """A slot's grant page. The agent writes this page, and the slot's clients read it."""

    _fields_ = [
        ("header", PageHeader),
        ("current", c_uint32),
        ("plan", c_uint32),
        ("credit_epoch", c_uint32),
        ("used_mib", c_uint32),
        ("park", c_uint32),
        ("leaving_mib", c_uint32),
        ("returning_mib", c_uint32),
        ("question", c_uint32),
        ("spare", c_uint32 * 8),
        ("copy", Grant * 2),
        ("stays", c_uint32 * (GPU_CLIENTS_MAX // 32)),
        ("unused", c_uint8 * 64),
        ("besides", c_uint64 * BESIDES),
        ("credit_mib", c_uint32 * GPU_CLIENTS_MAX),
    ]


class BusyPage(LittleEndianStructure):
    """A client's busy page. The client writes this page; the agent and, if the client is hp, be clients read it."""

    _fields_ = [
        ("header", PageHeader),
        ("state", c_uint32),
        ("alive", c_uint32),
        ("progress", c_uint64),
        ("heartbeat_ns", c_uint64),
        ("drained_ns", c_uint64),
        ("busy_since_ns", c_uint64),
        ("overlap_until_ns", c_uint64),
        ("current", c_uint64),
        ("retired", c_uint64),
        ("typical_ns", c_uint64),
        ("unused", c_uint8 * 3960),
    ]


class BusyPeriod(LittleEndianStructure):
    """A closed busy period of an hp client."""

    _fields_ = [("begin_ns", c_uint64), ("end_ns", c_uint64)]


class RecordPage(LittleEndianStructure):
    """A client's record page. The client writes this page, and only the agent reads it."""

    _fields_ = [
        ("header", PageHeader),
        ("client_index", c_uint32),
        ("generation", c_uint32),
        ("process_id", c_uint32),
        ("reserved", c_uint32),
        ("command", c_char * 16),
        ("launches", c_uint64),
        ("gated_launches", c_uint64),
        ("gated_ns", c_uint64),
        ("window_waits", c_uint64),
        ("window_wait_ns", c_uint64),
        ("waiting_since_ns", c_uint64),
        ("in_flight_ns", c_uint64),
        ("window_share_ns", c_uint64),
        ("samples", c_uint64),
        ("kernels_known", c_uint64),
        ("busy_ns", c_uint64),
        ("busy_periods", c_uint64),
        ("busy_since_ns", c_uint64),
        ("linger_ns", c_uint64),
        ("memory_bytes", c_uint64),
        ("memory_refusals", c_uint64),
        ("given_up", c_uint64),
        ("unknown_functions", c_uint64),
        ("wait_bucket", c_uint64 * WAIT_BUCKETS),
        ("gpu_ns", c_uint64),
        ("overlapped_launches", c_uint64),
        ("overlapped_ns", c_uint64),
        ("partitioned_launches", c_uint64),
        ("slowdown_milli", c_uint64),
        ("overlap_ns", c_uint64),
        ("control_periods", c_uint64),
        ("shares_context", c_uint64),
        ("long_kernel_ns", c_uint64),
        ("long_kernel_name", c_char * 128),
        ("fault", c_uint64),
        ("launches_counted_ns", c_uint64),
        ("piece_ns", c_uint64),
        ("credit_epoch", c_uint64),
        ("parking", c_uint64),
        ("parking_since_ns", c_uint64),
        ("retired", c_uint64),
        ("period", BusyPeriod * BUSY_PERIODS),
        ("ran_on_ns", c_uint64),
        ("memory_least", c_uint64),
        ("memory_most", c_uint64),
        ("has_pools", c_uint64),
        ("memory_taken", c_uint64),
        ("unused", c_uint8 * 1256),
    ]


class Rank(LittleEndianStructure):
    """One client of a job, in the job page. The client writes these words; the agent clears them once it has left."""

    _fields_ = [
        ("tied", c_uint32),
        ("launched", c_uint32),
        ("has_hp", c_uint32),
        ("closed_until_ms", c_uint32),
        ("ending_until_ms", c_uint32),
        ("spare", c_uint32 * 11),
        ("begun", c_uint32),
        ("arrived", c_uint32 * MEETING_STREAMS),
        ("unused", c_uint32 * (15 - MEETING_STREAMS)),
    ]


class JobPage(LittleEndianStructure):
    """A job's page. The job's clients write and read this page."""

    _fields_ = [
        ("header", PageHeader),
        ("allowed", c_uint32),
        ("ranks", c_uint32),
        ("spare", c_uint32 * 14),
        ("rank", Rank * RANKS_MAX),
    ]


def offset(structure: type[LittleEndianStructure], field: str) -> int:
    """Return the offset of ``field`` in ``structure``, in bytes."""
    position: int = getattr(structure, field).offset
    return position
