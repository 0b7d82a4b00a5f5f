"""The messages of joining, and the tables of knowledge that travel with them, as Python sees them.

A mirror of ``hook/include/orion/join.h`` and ``knowledge.h``, as ``layout.py`` is one of the pages, and compared with
them in the same way. Messages are built and parsed with the structures directly.
"""

from ctypes import LittleEndianStructure, c_char, c_uint8, c_uint16, c_uint32, c_uint64
from enum import IntEnum

MESSAGE_MAGIC = 0x4E494A4F
MESSAGE_MAX = 4096
FDS_MAX = 250

HELLO_RETURNS = 1
OFFERS_KNOWLEDGE = 1

KNOWLEDGE_MAGIC = 0x3157454E4B4E524F
KNOWLEDGE_LAYOUT = 1
KNOWLEDGE_ENTRIES = 8192
LEARNT_ENTRIES = 250
KNOWN_PROFILE = 1


class MessageType(IntEnum):
    """The first 16 come from clients, the others from the agent."""

    HELLO = 1
    READY = 2
    REPORT = 3
    SUSPECT = 4
    LEARNT = 5
    WELCOME = 16
    REFUSED = 17
    NEIGHBOURS = 18
    GONE = 19
    KNOWLEDGE = 20


class Refusal(IntEnum):
    """Why a client was not let in."""

    LAYOUT = 1
    FULL = 2
    RATE = 3
    PAGES = 4
    SLOT = 5


class ReportCode(IntEnum):
    """What a client has to tell people."""

    UNKNOWN_FUNCTION = 1
    GIVEN_UP = 2
    PAGES = 3


class Message(LittleEndianStructure):
    """How every message begins."""

    _fields_ = [("magic", c_uint32), ("type", c_uint32)]


class Hello(LittleEndianStructure):
    """A process wants to be a client, or to be one again."""

    _fields_ = [
        ("head", Message),
        ("layout_oldest", c_uint32),
        ("layout_newest", c_uint32),
        ("flags", c_uint32),
        ("process_id", c_uint32),
        ("place", c_uint32),
        ("generation", c_uint32),
        ("command", c_char * 16),
        ("hook_version", c_char * 16),
    ]


class Ready(LittleEndianStructure):
    """The client has mapped its pages."""

    _fields_ = [("head", Message)]


class Report(LittleEndianStructure):
    """The client met something that people should see."""

    _fields_ = [("head", Message), ("code", c_uint32), ("reserved", c_uint32), ("text", c_char * 112)]


class Suspect(LittleEndianStructure):
    """A be client waits for an hp client whose beat is stale."""

    _fields_ = [("head", Message), ("place", c_uint32), ("generation", c_uint32)]


class Welcome(LittleEndianStructure):
    """The process is a client."""

    _fields_ = [
        ("head", Message),
        ("layout", c_uint32),
        ("role", c_uint32),
        ("place", c_uint32),
        ("generation", c_uint32),
        ("returned", c_uint32),
        ("offers", c_uint32),
    ]


class Refused(LittleEndianStructure):
    """It is not, and why."""

    _fields_ = [("head", Message), ("code", c_uint32), ("retry_ms", c_uint32), ("text", c_char * 112)]


class Place(LittleEndianStructure):
    """Names a client on its GPU."""

    _fields_ = [("place", c_uint32), ("generation", c_uint32)]


class Neighbours(LittleEndianStructure):
    """hp clients that came, with their busy pages."""

    _fields_ = [("head", Message), ("count", c_uint32), ("reserved", c_uint32), ("places", Place * FDS_MAX)]


class Gone(LittleEndianStructure):
    """hp clients that left."""

    _fields_ = [("head", Message), ("count", c_uint32), ("reserved", c_uint32), ("places", Place * FDS_MAX)]


class KnowledgeEntry(LittleEndianStructure):
    """What is known of one identity."""

    _fields_ = [
        ("identity", c_uint64),
        ("expected_100ns", c_uint32),
        ("sms", c_uint16),
        ("kernel_class", c_uint8),
        ("flags", c_uint8),
    ]


class KnowledgeHeader(LittleEndianStructure):
    """How a table of entries begins."""

    _fields_ = [("magic", c_uint64), ("layout", c_uint32), ("count", c_uint32)]


class Learnt(LittleEndianStructure):
    """What a client learnt since it last said so."""

    _fields_ = [
        ("head", Message),
        ("count", c_uint32),
        ("reserved", c_uint32),
        ("entries", KnowledgeEntry * LEARNT_ENTRIES),
    ]


class Knowledge(LittleEndianStructure):
    """What the slot's clients learnt; the table comes as a descriptor."""

    _fields_ = [("head", Message), ("count", c_uint32), ("reserved", c_uint32)]
