"""The messages by which clients join, and the knowledge tables that they carry, as Python structures.

This module mirrors ``hook/include/orion/join.h`` and ``knowledge.h``. The test that compares ``layout.py`` with its
header compares this module too. Callers build and parse messages directly with these structures.
"""

from ctypes import LittleEndianStructure, c_char, c_uint8, c_uint16, c_uint32, c_uint64
from enum import IntEnum

MESSAGE_MAGIC = 0x4E494A4F
MESSAGE_MAX = 4096
FDS_MAX = 250

HELLO_RETURNS = 1
HELLO_KEEPS_CREDIT = 2
HELLO_IS_AWAY = 4
OFFERS_KNOWLEDGE = 1

KNOWLEDGE_MAGIC = 0x3157454E4B4E524F
KNOWLEDGE_LAYOUT = 1
KNOWLEDGE_ENTRIES = 8192
LEARNT_ENTRIES = 250
KNOWN_PROFILE = 1


class MessageType(IntEnum):
    """Types below 16 are messages of clients; the others are messages of the agent."""

    HELLO = 1
    READY = 2
    REPORT = 3
    SUSPECT = 4
    LEARNT = 5
    TURN = 6
    MEMORY = 7
    VIEW = 8
    ROOM = 9
    WELCOME = 16
    REFUSED = 17
    NEIGHBOURS = 18
    GONE = 19
    KNOWLEDGE = 20
    JOB = 21
    CREDIT = 22
    SHOWN = 23
    PARK = 24


class Refusal(IntEnum):
    """Why the agent refused a client."""

    LAYOUT = 1
    FULL = 2
    RATE = 3
    PAGES = 4
    SLOT = 5


class TurnWish(IntEnum):
    """What a be client wants about its slot's turns."""

    HANDED_BACK = 1
    WANTED = 2


class CreditAnswer(IntEnum):
    """What the agent answers to a client that wants more memory."""

    NO = 1
    YES = 2
    LATER = 3


class ReportCode(IntEnum):
    """What a client reports to users."""

    UNKNOWN_FUNCTION = 1
    GIVEN_UP = 2
    PAGES = 3


class Message(LittleEndianStructure):
    """The start of every message."""

    _fields_ = [("magic", c_uint32), ("type", c_uint32)]


class Hello(LittleEndianStructure):
    """A process asks to become a client, or to become a client again after a restart of the agent."""

    _fields_ = [
        ("head", Message),
        ("layout_oldest", c_uint32),
        ("layout_newest", c_uint32),
        ("flags", c_uint32),
        ("process_id", c_uint32),
        ("client_index", c_uint32),
        ("generation", c_uint32),
        ("command", c_char * 16),
        ("hook_version", c_char * 16),
    ]


class Ready(LittleEndianStructure):
    """The client reports that it has mapped its pages."""

    _fields_ = [("head", Message)]


class Report(LittleEndianStructure):
    """The client reports something that users should see."""

    _fields_ = [("head", Message), ("code", c_uint32), ("reserved", c_uint32), ("text", c_char * 112)]


class Suspect(LittleEndianStructure):
    """A be client reports that it waits for an hp client whose heartbeat is stale."""

    _fields_ = [("head", Message), ("client_index", c_uint32), ("generation", c_uint32)]


class Turn(LittleEndianStructure):
    """A be client hands back the rest of its slot's turn, or asks for a turn."""

    _fields_ = [("head", Message), ("wish", c_uint32), ("reserved", c_uint32)]


class MemoryWish(LittleEndianStructure):
    """A client wants more device memory: than its credit allows (MEMORY), or than is free on the GPU (ROOM)."""

    _fields_ = [("head", Message), ("client_index", c_uint32), ("generation", c_uint32), ("bytes", c_uint64)]


class Credit(LittleEndianStructure):
    """The agent has decided about a MemoryWish, and written the credit into the grant page."""

    _fields_ = [("head", Message), ("answer", c_uint32), ("reserved", c_uint32)]


class Park(LittleEndianStructure):
    """The word ``park`` of the slot's grant has changed."""

    _fields_ = [("head", Message)]


class View(LittleEndianStructure):
    """A process that is no client wants to read its slot's grant."""

    _fields_ = [("head", Message)]


class Shown(LittleEndianStructure):
    """The agent shows the slot's grant; the page is a file descriptor in the message."""

    _fields_ = [("head", Message)]


class Welcome(LittleEndianStructure):
    """The agent accepted the process as a client."""

    _fields_ = [
        ("head", Message),
        ("layout", c_uint32),
        ("role", c_uint32),
        ("client_index", c_uint32),
        ("generation", c_uint32),
        ("returned", c_uint32),
        ("offers", c_uint32),
    ]


class Refused(LittleEndianStructure):
    """The agent refused the process, with a reason."""

    _fields_ = [("head", Message), ("code", c_uint32), ("retry_ms", c_uint32), ("text", c_char * 112)]


class Place(LittleEndianStructure):
    """Identifies a client on its GPU."""

    _fields_ = [("client_index", c_uint32), ("generation", c_uint32)]


class Neighbours(LittleEndianStructure):
    """The agent lists hp clients that joined, with their busy pages."""

    _fields_ = [("head", Message), ("count", c_uint32), ("reserved", c_uint32), ("places", Place * FDS_MAX)]


class Gone(LittleEndianStructure):
    """The agent lists hp clients that ended."""

    _fields_ = [("head", Message), ("count", c_uint32), ("reserved", c_uint32), ("places", Place * FDS_MAX)]


class KnowledgeEntry(LittleEndianStructure):
    """What was learnt about the work with one identity: its duration, its SMs and its class."""

    _fields_ = [
        ("identity", c_uint64),
        ("expected_100ns", c_uint32),
        ("sms", c_uint16),
        ("kernel_class", c_uint8),
        ("flags", c_uint8),
    ]


class KnowledgeHeader(LittleEndianStructure):
    """The header of a table of entries."""

    _fields_ = [("magic", c_uint64), ("layout", c_uint32), ("count", c_uint32)]


class Learnt(LittleEndianStructure):
    """What a client learnt since its last message of this type."""

    _fields_ = [
        ("head", Message),
        ("count", c_uint32),
        ("reserved", c_uint32),
        ("entries", KnowledgeEntry * LEARNT_ENTRIES),
    ]


class Knowledge(LittleEndianStructure):
    """What the slot's clients learnt; the table is a file descriptor in the message."""

    _fields_ = [("head", Message), ("count", c_uint32), ("reserved", c_uint32)]


class Job(LittleEndianStructure):
    """The client's index in its job's page; the page is a file descriptor in the message."""

    _fields_ = [("head", Message), ("rank", c_uint32), ("reserved", c_uint32)]
