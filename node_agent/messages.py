"""The messages of joining, built and parsed.

One struct a message, its length fixed by its type, so parsing is a comparison of three numbers: nothing in a message
is a length that has to be trusted. What is not exactly one of a client's messages is refused as a whole.
"""

from collections.abc import Sequence
from ctypes import sizeof
from typing import Final

from orion.hook import layout

FromClient = layout.Hello | layout.Ready | layout.Report | layout.Suspect | layout.Learnt

_FROM_CLIENT: Final[dict[int, type[FromClient]]] = {
    layout.MessageType.HELLO: layout.Hello,
    layout.MessageType.READY: layout.Ready,
    layout.MessageType.REPORT: layout.Report,
    layout.MessageType.SUSPECT: layout.Suspect,
    layout.MessageType.LEARNT: layout.Learnt,
}
_LISTS: Final = {layout.MessageType.NEIGHBOURS: layout.Neighbours, layout.MessageType.GONE: layout.Gone}


class MalformedMessage(ValueError):
    """These bytes are no message that a client may send."""


def parse(data: bytes) -> FromClient:
    """Return the client's message in ``data``.

    Raises:
        MalformedMessage: wrong magic, type or length.
    """
    if len(data) < sizeof(layout.Message):
        raise MalformedMessage(f"{len(data)} bytes are too few for a message")
    head = layout.Message.from_buffer_copy(data)
    structure = _FROM_CLIENT.get(head.type)
    if head.magic != layout.MESSAGE_MAGIC or structure is None:
        raise MalformedMessage(f"no message has magic {head.magic:#x} and type {head.type}")
    if len(data) != sizeof(structure):
        raise MalformedMessage(f"a {structure.__name__} has {sizeof(structure)} bytes, not {len(data)}")
    return structure.from_buffer_copy(data)


def returns(data: bytes) -> bool:
    """Return whether ``data`` is the HELLO of a returning client, the one message that may carry descriptors."""
    try:
        message = parse(data)
    except MalformedMessage:
        return False
    return isinstance(message, layout.Hello) and bool(message.flags & layout.HELLO_RETURNS)


def _head(kind: layout.MessageType) -> layout.Message:
    return layout.Message(magic=layout.MESSAGE_MAGIC, type=kind)


def welcome(role: layout.Role, version: int, place: int, generation: int, returned: bool) -> bytes:
    """Build a WELCOME."""
    head = _head(layout.MessageType.WELCOME)
    return bytes(layout.Welcome(head, version, role, place, generation, int(returned), layout.OFFERS_KNOWLEDGE))


def refused(code: layout.Refusal, sentence: str, retry_ms: int = 0) -> bytes:
    """Build a REFUSED; ``retry_ms`` 0 means that trying again is useless until something changes."""
    text = sentence.encode("ascii", "replace")[:111]
    return bytes(layout.Refused(_head(layout.MessageType.REFUSED), code, retry_ms, text))


def places(kind: layout.MessageType, listed: Sequence[tuple[int, int]]) -> bytes:
    """Build a NEIGHBOURS or a GONE of at most FDS_MAX (place, generation) pairs."""
    message = _LISTS[kind](_head(kind), len(listed), 0)
    for index, (place, generation) in enumerate(listed):
        message.places[index].place = place
        message.places[index].generation = generation
    return bytes(message)


def knowledge(count: int) -> bytes:
    """Build a KNOWLEDGE; the table of ``count`` entries goes with it as a descriptor."""
    return bytes(layout.Knowledge(_head(layout.MessageType.KNOWLEDGE), count, 0))


def printable(raw: bytes, limit: int) -> str:
    """Return a tenant's bytes as text that any log, table or label can bear."""
    text = raw.split(b"\0", 1)[0][:limit].decode("ascii", "replace")
    return "".join(character if " " <= character <= "~" else "?" for character in text)
