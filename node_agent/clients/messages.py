"""Builds and parses the messages between clients and the agent, which hook/include/orion/join.h describes.

Each message is one struct, and its type determines its length. So the parser compares three numbers (magic, type and
length) and trusts no length in a message. It rejects bytes that are not exactly one of a client's messages.
"""

from collections.abc import Sequence
from ctypes import sizeof
from functools import lru_cache
from typing import Final

from orion.errors import Invalid
from orion.hook import join, layout

FromClient = (
    join.Hello | join.Ready | join.Report | join.Suspect | join.Learnt | join.Turn | join.MemoryWish | join.View
)
Notice = join.Suspect | join.Turn
""" What needs no answer. """

_FROM_CLIENT: Final[dict[int, type[FromClient]]] = {
    join.MessageType.HELLO: join.Hello,
    join.MessageType.READY: join.Ready,
    join.MessageType.REPORT: join.Report,
    join.MessageType.SUSPECT: join.Suspect,
    join.MessageType.LEARNT: join.Learnt,
    join.MessageType.TURN: join.Turn,
    join.MessageType.MEMORY: join.MemoryWish,
    join.MessageType.ROOM: join.MemoryWish,
    join.MessageType.VIEW: join.View,
}
_LISTS: Final = {join.MessageType.NEIGHBOURS: join.Neighbours, join.MessageType.GONE: join.Gone}


def parse(data: bytes) -> FromClient:
    """Return the client's message in ``data``.

    Raises:
        Invalid: wrong magic, type or length.
    """
    if len(data) < sizeof(join.Message):
        raise Invalid(f"{len(data)} bytes are too few for a message")
    head = join.Message.from_buffer_copy(data)
    structure = _FROM_CLIENT.get(head.type)
    if head.magic != join.MESSAGE_MAGIC or structure is None:
        raise Invalid(f"no message has magic {head.magic:#x} and type {head.type}")
    if len(data) != sizeof(structure):
        raise Invalid(f"a {structure.__name__} has {sizeof(structure)} bytes, not {len(data)}")
    return structure.from_buffer_copy(data)


def returns(data: bytes) -> bool:
    """Return whether ``data`` is the HELLO of a returning client, the one message that may carry descriptors."""
    try:
        message = parse(data)
    except Invalid:
        return False
    return isinstance(message, join.Hello) and bool(message.flags & join.HELLO_RETURNS)


@lru_cache(maxsize=64)
def notice(data: bytes) -> Notice | None:
    """Return the notice in ``data``; None: it is something else. Nobody changes it: the same few come all the time."""
    if len(data) != sizeof(join.Turn):
        return None
    try:
        message = parse(data)
    except Invalid:
        return None
    return message if isinstance(message, Notice) else None


def _head(kind: join.MessageType) -> join.Message:
    return join.Message(magic=join.MESSAGE_MAGIC, type=kind)


def welcome(role: layout.Role, version: int, client_index: int, generation: int, returned: bool) -> bytes:
    """Build a WELCOME."""
    head = _head(join.MessageType.WELCOME)
    return bytes(join.Welcome(head, version, role, client_index, generation, int(returned), join.OFFERS_KNOWLEDGE))


def refused(code: join.Refusal, sentence: str, retry_ms: int = 0) -> bytes:
    """Build a REFUSED; ``retry_ms`` 0: a retry fails until something changes."""
    text = sentence.encode("ascii", "replace")[:111]
    return bytes(join.Refused(_head(join.MessageType.REFUSED), code, retry_ms, text))


def listing(kind: join.MessageType, listed: Sequence[tuple[int, int]]) -> bytes:
    """Build a NEIGHBOURS or a GONE of at most FDS_MAX (client index, generation) pairs."""
    message = _LISTS[kind](_head(kind), len(listed), 0)
    for index, (client_index, generation) in enumerate(listed):
        message.places[index].client_index = client_index
        message.places[index].generation = generation
    return bytes(message)


def job(rank: int) -> bytes:
    """Build a JOB; a writable descriptor of the job's page is sent with it."""
    return bytes(join.Job(_head(join.MessageType.JOB), rank, 0))


def credit(answer: join.CreditAnswer) -> bytes:
    """Build a CREDIT: whether a client may hold what it has asked for."""
    return bytes(join.Credit(_head(join.MessageType.CREDIT), answer, 0))


def park() -> bytes:
    """Build a PARK: the word `park` of the slot's grant may have changed."""
    return bytes(join.Park(_head(join.MessageType.PARK)))


def shown() -> bytes:
    """Build a SHOWN; a descriptor of the slot's grant page is sent with it."""
    return bytes(join.Shown(_head(join.MessageType.SHOWN)))


def knowledge(count: int) -> bytes:
    """Build a KNOWLEDGE; a descriptor of the table of ``count`` entries is sent with it."""
    return bytes(join.Knowledge(_head(join.MessageType.KNOWLEDGE), count, 0))
